/* Loads and stores through an attached segment, or through plain shared memory of the same size. */
#define _GNU_SOURCE
#include "bench.h"

#include <stdio.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>

struct field {
    uint64_t *word;
    size_t words; /* a power of two */
    uint64_t at;
};

/* A load, an addition and a store at pseudo-random places: neither prefetched nor combined. */
static void update(void *arg, uint64_t n) {
    struct field *f = arg;
    uint64_t at = f->at;
    for (uint64_t i = 0; i < n; i++) {
        at = at * 6364136223846793005u + 1442695040888963407u;
        volatile uint64_t *word = &f->word[(at >> 33) & (f->words - 1)];
        *word += i;
    }
    f->at = at;
}

static void *attach_new(size_t size) {
    int id = shmget(IPC_PRIVATE, size, IPC_CREAT | 0600);
    if (id < 0)
        die("shmget");
    void *at = shmat(id, NULL, 0);
    if (at == (void *)-1)
        die("shmat");
    if (shmctl(id, IPC_RMID, NULL) != 0)
        die("shmctl IPC_RMID");
    return at;
}

int bench_memory(const char *argument) {
    int plain = strncmp(argument, "mmap", 4) == 0;
    size_t size = strstr(argument, ",large") ? 64u << 20 : 64u << 10;
    struct field field = {.words = size / sizeof(uint64_t), .at = 1};
    field.word = plain ? shared_memory(size) : attach_new(size);
    memset(field.word, 1, size);
    report(median_ns(update, &field), "ns");
    return 0;
}
