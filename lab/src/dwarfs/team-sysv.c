/* System V: processes that are started separately, anywhere; barrier and reduction by hand, as the
 * papers had to. Nothing but the headers of System V is used. */
#define _GNU_SOURCE
#include "dwarf.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/shm.h>

enum { MEMBERS = 64, SPINS = 100 };

int team_rank, team_size;

/* The segment of the team's key. */
static struct {
    _Alignas(64) atomic_int joined;
    _Alignas(64) atomic_int arrived;
    _Alignas(64) atomic_uint turn; /* of the barrier */
    /* For reductions: one table is read while the other is written. */
    struct {
        _Alignas(64) double values[SUMS];
        uint64_t told;
    } slot[2][MEMBERS];
} * shared;
static unsigned table;

void team_barrier(void) {
    unsigned turn = atomic_load_explicit(&shared->turn, memory_order_relaxed);
    if (atomic_fetch_add(&shared->arrived, 1) + 1 == team_size) {
        atomic_store_explicit(&shared->arrived, 0, memory_order_relaxed);
        atomic_store_explicit(&shared->turn, turn + 1, memory_order_release);
        return;
    }
    /* Where processes are more than processors, another one may have to run: yield soon. */
    for (int spins = 0; atomic_load_explicit(&shared->turn, memory_order_acquire) == turn; spins++)
        if (spins < SPINS)
            __builtin_ia32_pause();
        else
            sched_yield();
}

void team_sum(double *values, size_t count) {
    table = !table;
    memcpy(shared->slot[table][team_rank].values, values, count * sizeof *values);
    team_barrier();
    memset(values, 0, count * sizeof *values);
    for (int i = 0; i < team_size; i++)
        for (size_t j = 0; j < count; j++)
            values[j] += shared->slot[table][i].values[j];
}

uint64_t team_tell(uint64_t value) {
    table = !table;
    if (team_rank == 0)
        shared->slot[table][0].told = value;
    team_barrier();
    return shared->slot[table][0].told;
}

static void *attached(int id) {
    void *at = shmat(id, NULL, 0);
    if (at == (void *)-1)
        die("shmat");
    return at;
}

double team_join(int *argc, char ***argv, unsigned key, int size) {
    (void)argc, (void)argv;
    double began = clock_ns();
    if (size > MEMBERS) {
        errno = E2BIG;
        die("processes");
    }
    int id = shmget((key_t)key, sizeof *shared, IPC_CREAT | 0600);
    if (id < 0)
        die("shmget");
    shared = attached(id);
    team_size = size;
    team_rank = atomic_fetch_add(&shared->joined, 1);
    double ns = clock_ns() - began;
    team_barrier();
    began = clock_ns();
    if (team_rank == 0 && shmctl(id, IPC_RMID, NULL) != 0)
        die("shmctl");
    return ns + clock_ns() - began;
}

void team_leave(void) { shmdt(shared); }

void *team_memory(size_t size) {
    int id = team_rank == 0 ? shmget(IPC_PRIVATE, size, IPC_CREAT | 0600) : 0;
    if (id < 0)
        die("shmget");
    id = (int)team_tell((uint64_t)id);
    void *memory = attached(id);
    team_barrier();
    if (team_rank == 0 && shmctl(id, IPC_RMID, NULL) != 0)
        die("shmctl");
    return memory;
}

void team_free(void *memory) {
    if (shmdt(memory) != 0)
        die("shmdt");
}
