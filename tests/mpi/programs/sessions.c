/* MPI-4's sessions: a program without MPI_COMM_WORLD, whose ranks find each other by the name of a
   set of processes, with two sessions at once. The argument says how often, one time after another.
 */
#include "job.h"

#if MPI_VERSION >= 4 || (defined OMPI_MAJOR_VERSION && OMPI_MAJOR_VERSION >= 5)

/* everybody SESSION TAG: a communicator of the whole job, which works */
static MPI_Comm everybody(MPI_Session session, const char *tag) {
    MPI_Group group;
    MPI_Comm comm;
    long sum, mine;
    MPI_Group_from_session_pset(session, "mpi://WORLD", &group);
    MPI_Comm_create_from_group(group, tag, MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm);
    MPI_Group_free(&group);
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    mine = rank + 1;
    MPI_Allreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, comm);
    CHECK(sum == (long)size * (size + 1) / 2, "a sum of %ld", sum);
    return comm;
}

/* What goes through one communicator is not seen in the other. */
static void apart(MPI_Comm one, MPI_Comm other) {
    enum { LENGTH = 100000 };
    int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    unsigned char *in = room(LENGTH), *out = room(LENGTH);
    MPI_Comm comms[] = {one, other};
    MPI_Request open[2];
    for (int i = 0; i < 2; i++)
        MPI_Isend(fill(out + i * 50000, 50000, (unsigned)(rank * 10 + i)), 50000, MPI_BYTE, next, 7,
                  comms[i], &open[i]);
    for (int i = 1; i >= 0; i--) {
        MPI_Recv(in, LENGTH, MPI_BYTE, previous, 7, comms[i], MPI_STATUS_IGNORE);
        check_text(in, 50000, (unsigned)(previous * 10 + i));
    }
    /* Not together: what is of two sessions may not go into one call. */
    for (int i = 0; i < 2; i++)
        MPI_Wait(&open[i], MPI_STATUS_IGNORE);
    free(in);
    free(out);
}

int main(int argc, char **argv) {
    int on = 0, rounds = argc > 1 ? atoi(argv[1]) : 1;
    for (int round = 0; round < rounds; round++) {
        MPI_Session first, second;
        MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &first);
        MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &second);
        MPI_Comm one = everybody(first, "org.vshmem.one"),
                 other = everybody(second, "org.vshmem.other");
        apart(one, other);
        on = hosts(one);
        MPI_Comm_free(&one);
        MPI_Comm_free(&other);
        MPI_Session_finalize(&first);
        MPI_Session_finalize(&second);
    }
    if (rank == 0)
        printf("sessions: %d ranks on %d hosts\n", size, on);
    return 0;
}
#else
int main(int argc, char **argv) {
    begin(&argc, &argv);
    CHECK(0, "this MPI has no sessions");
    return 1;
}
#endif
