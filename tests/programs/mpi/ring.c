/* Passes messages of growing size around a ring of processes, checks each, and adds ranks up. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS 40

static void check(int good, const char *what) {
    if (!good) {
        fprintf(stderr, "%s\n", what);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static void pass_around(int rank, int size, int length) {
    int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    char *out = malloc(length), *in = malloc(length);
    check(out && in, "no memory");
    for (int round = 0; round < ROUNDS; round++) {
        memset(out, rank + round, length);
        MPI_Sendrecv(out, length, MPI_CHAR, next, 0, in, length, MPI_CHAR, previous, 0,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int i = 0; i < length; i++)
            check(in[i] == (char)(previous + round), "a message came changed");
    }
    free(out);
    free(in);
}

int main(int argc, char **argv) {
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int length = 1; length <= 1 << 20; length *= 16)
        pass_around(rank, size, length);
    for (int round = 0; round < ROUNDS; round++) {
        long mine = rank + round, sum = 0;
        MPI_Allreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
        check(sum == (long)size * (size - 1) / 2 + (long)size * round, "a sum is wrong");
    }
    if (rank == 0)
        printf("%d processes done\n", size);
    MPI_Finalize();
    return 0;
}
