/* A library with RUNPATH=$ORIGIN/sub, which counts for what it opens itself. */
#define _GNU_SOURCE
#include <dlfcn.h>

/* Volatile: as a tail call, it would be the program's. */
void *origin_open(const char *name, int mode) {
    void *volatile opened = dlopen(name, mode);
    return opened;
}

void *origin_open_in(Lmid_t space, const char *name, int mode) {
    void *volatile opened = dlmopen(space, name, mode);
    return opened;
}
