/* The pool of VSHMEM_POOL as its file, for who writes into it as docs/layout.md says. */
#ifndef POOL_H
#define POOL_H

#include "../conformance/tests.h"
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>

static unsigned char *pool;
static size_t pool_size;

__attribute__((unused)) static _Atomic uint64_t *word(uint64_t offset) {
    return (_Atomic uint64_t *)(void *)(pool + offset);
}

__attribute__((unused)) static _Atomic uint32_t *half(uint64_t offset) {
    return (_Atomic uint32_t *)(void *)(pool + offset);
}

/* Where a table is that the superblock names. */
static uint64_t table(int number) { return *word(32 + 16 * (uint64_t)number); }

/* The entry of an id. */
static uint64_t entry(int number, uint64_t bytes, int id) {
    return table(number) + ((uint64_t)id & 0x1ffff) * bytes;
}

static void open_pool(void) {
    const int fd = open(getenv("VSHMEM_POOL"), O_RDWR);
    struct stat st;
    CHECK(fd >= 0 && fstat(fd, &st) == 0);
    pool = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(pool != MAP_FAILED);
    pool_size = (size_t)st.st_size;
    close(fd);
}

#endif
