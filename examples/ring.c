/* A token goes once round all ranks, each of which adds its number. Knows MPI and nothing of
 * Vshmem. */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv) {
    int rank, size, token = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int before = (rank + size - 1) % size, after = (rank + 1) % size;

    if (rank != 0)
        MPI_Recv(&token, 1, MPI_INT, before, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    token += rank;
    if (size > 1)
        MPI_Send(&token, 1, MPI_INT, after, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        if (size > 1)
            MPI_Recv(&token, 1, MPI_INT, before, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        printf("%d ranks add up to %d\n", size, token);
    }
    MPI_Finalize();
    return 0;
}
