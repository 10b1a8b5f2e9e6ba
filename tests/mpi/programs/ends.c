/* Ranks that exchange messages, of which the last does what the argument says after a while: crash,
   abort, exit, return; or nothing, hold, until it is killed. */
#include "job.h"
#include <signal.h>
#include <unistd.h>

#define LENGTH 50000

static void end(const char *how) {
    if (!strcmp(how, "crash"))
        raise(SIGSEGV);
    if (!strcmp(how, "abort"))
        MPI_Abort(MPI_COMM_WORLD, 5);
    if (!strcmp(how, "exit"))
        _exit(6);
}

int main(int argc, char **argv) {
    static unsigned char out[LENGTH], in[LENGTH];
    char host[256] = "";
    begin(&argc, &argv);
    CHECK(argc == 2, "usage: ends crash|abort|exit|return|hold");
    gethostname(host, sizeof host - 1);
    printf("rank %d is process %d of %s\n", rank, (int)getpid(), host);
    fflush(stdout);
    for (int round = 0; round < 200 || strcmp(argv[1], "return"); round++) {
        MPI_Sendrecv(out, LENGTH, MPI_BYTE, (rank + 1) % size, 0, in, LENGTH, MPI_BYTE,
                     (rank + size - 1) % size, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (round == 100 && rank == size - 1)
            end(argv[1]);
    }
    MPI_Finalize();
    return rank == size - 1 ? 7 : 0;
}
