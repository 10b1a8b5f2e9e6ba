/* OpenMP: one process, whose threads are no members of the team. */
#include "dwarf.h"

#include <omp.h>
#include <stdlib.h>

int team_rank = 0, team_size = 1;

/* The threads are started by the first region. */
double team_join(int *argc, char ***argv, unsigned key, int size) {
    (void)argc, (void)argv, (void)key;
    double began = clock_ns();
    omp_set_dynamic(0);
    omp_set_num_threads(size);
#pragma omp parallel
    {}
    return clock_ns() - began;
}

void team_leave(void) {}
void team_barrier(void) {}
void team_sum(double *values, size_t count) { (void)values, (void)count; }
uint64_t team_tell(uint64_t value) { return value; }
void *team_memory(size_t size) { return own_memory(size); }

void team_free(void *memory) { free(memory); }
