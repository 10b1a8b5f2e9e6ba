/* The ranks start as many more, on hosts that the launcher chooses. Parents and children exchange
   messages of 1 B to 1 MiB, and all of them add up. With an argument, children are started on the
   host of that name. */
#include "job.h"

#define LONGEST (1 << 20)

/* Sends a text to the rank `to`, and checks that of the rank `from`. Texts tell whose they are. */
static void exchange(MPI_Comm comm, int to, int from, unsigned own, unsigned others) {
    unsigned char *out = room(LONGEST), *in = room(LONGEST);
    for (int length = 1; length <= LONGEST; length *= 4) {
        MPI_Status status;
        int got;
        memset(in, 0, (size_t)length);
        MPI_Sendrecv(fill(out, (size_t)length, own + (unsigned)length), length, MPI_BYTE, to, 0, in,
                     length, MPI_BYTE, from, 0, comm, &status);
        MPI_Get_count(&status, MPI_BYTE, &got);
        CHECK(got == length, "%d bytes came instead of %d", got, length);
        check_text(in, (size_t)length, others + (unsigned)length);
    }
    free(out);
    free(in);
}

static void meet(MPI_Comm others, int is_child) {
    MPI_Comm all;
    int mine, count, remote;
    MPI_Comm_remote_size(others, &remote);
    CHECK(remote == size, "there are %d others, not %d", remote, size);
    /* Each with all, so that some pairs are on different hosts. */
    for (int step = 0; step < size; step++) {
        int to = is_child ? (rank + size - step) % size : (rank + step) % size;
        unsigned own = (unsigned)(rank + is_child * size), peer = (unsigned)(to + !is_child * size);
        exchange(others, to, to, own, peer);
    }
    MPI_Intercomm_merge(others, is_child, &all);
    MPI_Comm_rank(all, &mine);
    MPI_Comm_size(all, &count);
    CHECK(count == 2 * size, "the merged communicator has %d ranks", count);
    long own = mine, sum = 0;
    MPI_Allreduce(&own, &sum, 1, MPI_LONG, MPI_SUM, all);
    CHECK(sum == (long)count * (count - 1) / 2, "a sum is wrong");
    exchange(all, (mine + 1) % count, (mine + count - 1) % count, (unsigned)mine,
             (unsigned)((mine + count - 1) % count));
    MPI_Comm_free(&all);
    MPI_Comm_disconnect(&others);
}

int main(int argc, char **argv) {
    MPI_Comm other;
    begin(&argc, &argv);
    MPI_Comm_get_parent(&other);
    if (other != MPI_COMM_NULL) {
        meet(other, 1);
        MPI_Finalize();
        return 0;
    }
    MPI_Info info = MPI_INFO_NULL;
    if (argc > 1) {
        MPI_Info_create(&info);
        MPI_Info_set(info, "host", argv[1]);
    }
    int *errors = calloc((size_t)size, sizeof *errors);
    CHECK(errors, "no memory");
    MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, size, info, 0, MPI_COMM_WORLD, &other, errors);
    for (int i = 0; i < size; i++)
        CHECK(errors[i] == MPI_SUCCESS, "child %d was not started", i);
    free(errors);
    if (info != MPI_INFO_NULL)
        MPI_Info_free(&info);
    meet(other, 0);
    return done("spawn");
}
