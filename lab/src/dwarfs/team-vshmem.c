/* Vshmem by name: the barrier and the reduction of vshmem.h in place of those written by hand. */
#include "dwarf.h"

#include <errno.h>
#include <vshmem.h>

int team_rank, team_size;
static vshm_barrier *barrier;

void team_barrier(void) {
    if (vshm_barrier_wait(barrier, NULL) < 0)
        die("vshm_barrier_wait");
}

void team_sum(double *values, size_t count) {
    if (vshm_reduce_double(barrier, values, count, VSHM_SUM, NULL) < 0)
        die("vshm_reduce_double");
}

uint64_t team_tell(uint64_t value) {
    int64_t told = team_rank == 0 ? (int64_t)value : 0;
    if (vshm_reduce_int64(barrier, &told, 1, VSHM_SUM, NULL) < 0)
        die("vshm_reduce_int64");
    return (uint64_t)told;
}

double team_join(int *argc, char ***argv, unsigned key, int size) {
    (void)argc, (void)argv;
    double began = clock_ns();
    barrier = vshm_barrier_open((key_t)key, (unsigned)size);
    if (barrier == NULL)
        die("vshm_barrier_open");
    team_rank = vshm_barrier_seat(barrier);
    team_size = size;
    double ns = clock_ns() - began;
    team_barrier();
    began = clock_ns();
    if (team_rank == 0 && vshm_barrier_remove((key_t)key) != 0)
        die("vshm_barrier_remove");
    return ns + clock_ns() - began;
}

void team_leave(void) { vshm_barrier_close(barrier); }

void *team_memory(size_t size) {
    int id = team_rank == 0 ? vshm_shmget(IPC_PRIVATE, size, IPC_CREAT | 0600) : 0;
    if (id < 0)
        die("vshm_shmget");
    id = (int)team_tell((uint64_t)id);
    void *memory = vshm_shmat(id, NULL, 0);
    if (memory == (void *)-1)
        die("vshm_shmat");
    team_barrier();
    if (team_rank == 0 && vshm_shmctl(id, IPC_RMID, NULL) != 0)
        die("vshm_shmctl");
    return memory;
}

void team_free(void *memory) {
    if (vshm_shmdt(memory) != 0)
        die("vshm_shmdt");
}
