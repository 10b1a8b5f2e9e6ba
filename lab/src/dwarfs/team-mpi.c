/* MPI: the members are its ranks. */
#include "dwarf.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int team_rank, team_size;

double team_join(int *argc, char ***argv, unsigned key, int size) {
    (void)key;
    double began = clock_ns();
    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &team_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &team_size);
    if (team_size != size) {
        fprintf(stderr, "dwarf: there are %d ranks, not %d\n", team_size, size);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return clock_ns() - began;
}

void team_leave(void) { MPI_Finalize(); }
void team_barrier(void) { MPI_Barrier(MPI_COMM_WORLD); }

void team_sum(double *values, size_t count) {
    MPI_Allreduce(MPI_IN_PLACE, values, (int)count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

uint64_t team_tell(uint64_t value) {
    MPI_Bcast(&value, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    return value;
}

void *team_memory(size_t size) { return own_memory(size); }

void team_free(void *memory) { free(memory); }
