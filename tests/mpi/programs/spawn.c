/* The ranks start two more, on hosts that the launcher chooses, and all of them add up and pass a
 * text on. */
#include "job.h"

#define CHILDREN 2
#define LENGTH 100000

static void meet(MPI_Comm parents, int first) {
    MPI_Comm all;
    int who, count;
    MPI_Intercomm_merge(parents, !first, &all);
    MPI_Comm_rank(all, &who);
    MPI_Comm_size(all, &count);
    long mine = who, sum = 0;
    MPI_Allreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, all);
    CHECK(sum == (long)count * (count - 1) / 2, "a sum is wrong");
    unsigned char *out = fill(room(LENGTH), LENGTH, (unsigned)who), *in = room(LENGTH);
    MPI_Sendrecv(out, LENGTH, MPI_BYTE, (who + 1) % count, 0, in, LENGTH, MPI_BYTE,
                 (who + count - 1) % count, 0, all, MPI_STATUS_IGNORE);
    check_text(in, LENGTH, (unsigned)((who + count - 1) % count));
    free(out);
    free(in);
    MPI_Comm_free(&all);
    MPI_Comm_disconnect(&parents);
}

int main(int argc, char **argv) {
    MPI_Comm other;
    begin(&argc, &argv);
    MPI_Comm_get_parent(&other);
    if (other != MPI_COMM_NULL) {
        meet(other, 0);
        MPI_Finalize();
        return 0;
    }
    int errors[CHILDREN];
    MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, CHILDREN, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &other,
                   errors);
    for (int i = 0; i < CHILDREN; i++)
        CHECK(errors[i] == MPI_SUCCESS, "child %d was not started", i);
    meet(other, 1);
    return done("spawn");
}
