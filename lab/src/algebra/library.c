/* What the programs that call a routine of a library's BLAS share. */
#define _GNU_SOURCE
#include "library.h"

#include "../dwarfs/dwarf.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/shm.h>
#include <time.h>

void die(const char *what) {
    fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what, strerror(errno));
    exit(1);
}

void *symbol_or_none(const char *library, const char *name) {
    void *loaded = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    return loaded == NULL ? NULL : dlsym(loaded, name);
}

void *symbol(const char *library, const char *name) {
    void *loaded = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    void *found = loaded == NULL ? NULL : dlsym(loaded, name);
    if (found == NULL) {
        fprintf(stderr, "%s: %s\n", program_invocation_short_name, dlerror());
        exit(1);
    }
    return found;
}

double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* xorshift64*. */
double some(void) {
    static uint64_t state = 88172645463325252;
    state ^= state >> 12, state ^= state << 25, state ^= state >> 27;
    return (double)(state * 2685821657736338717 >> 11) / 9007199254740992.0 - 0.5;
}

double *operands(size_t count, int in_segment) {
    const size_t bytes = count * sizeof(double);
    double *found;
    if (in_segment) {
        int id = shmget(IPC_PRIVATE, bytes, IPC_CREAT | 0600);
        if (id < 0)
            die("shmget");
        found = shmat(id, NULL, 0);
        if (found == (void *)-1 || shmctl(id, IPC_RMID, NULL) != 0)
            die("shmat");
    } else if ((found = malloc(bytes)) == NULL) {
        die("malloc");
    }
    for (size_t i = 0; i < count; i++)
        found[i] = some();
    return found;
}

void be_inexact(void) {
    volatile double third = 1;
    third /= 3;
}

void by_vector(double *y, const double *m, const double *x, size_t n, int transposed) {
    memset(y, 0, n * sizeof *y);
    for (size_t j = 0; j < n; j++)
        for (size_t i = 0; i < n; i++)
            y[transposed ? j : i] += m[i + j * n] * x[transposed ? i : j];
}
