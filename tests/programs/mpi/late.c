/* The last rank sends the first a message, answers while that ends, and ends a second later. */
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int rank, size, number = 5, found;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank == size - 1) {
        MPI_Send(&number, 1, MPI_INT, 0, 0, MPI_COMM_WORLD);
        for (double end = MPI_Wtime() + 1; MPI_Wtime() < end;)
            MPI_Iprobe(MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
        sleep(1);
    } else if (rank == 0) {
        MPI_Recv(&number, 1, MPI_INT, size - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        printf("%d came\n", number);
    }
    MPI_Finalize();
    return 0;
}
