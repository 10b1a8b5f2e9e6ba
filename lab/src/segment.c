/* The life of a segment: get, attach, touch every page, detach, remove. */
#include "bench.h"

#include <stdlib.h>
#include <sys/ipc.h>
#include <sys/shm.h>

static void lives(void *arg, uint64_t n) {
    size_t size = *(const size_t *)arg;
    for (uint64_t i = 0; i < n; i++) {
        int id = shmget(IPC_PRIVATE, size, IPC_CREAT | 0600);
        if (id < 0)
            die("shmget");
        volatile char *at = shmat(id, NULL, 0);
        if (at == (void *)-1)
            die("shmat");
        for (size_t page = 0; page < size; page += 4096)
            at[page] = 1;
        if (shmdt((const void *)at) != 0)
            die("shmdt");
        if (shmctl(id, IPC_RMID, NULL) != 0)
            die("shmctl IPC_RMID");
    }
}

int bench_segment(const char *argument) {
    size_t size = (size_t)atol(argument);
    report(median_ns(lives, &size), "ns");
    return 0;
}
