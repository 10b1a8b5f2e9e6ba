/*
 * enemy POOL SECONDS SEED: a hostile member. Maps a pool and writes to it whatever may hurt those
 * who use it, blind and knowing docs/layout.md, most of it for some moments only, so that the
 * others go on and meet it between a check and a use. Prints how many words it has written.
 *
 * Not linked with the library, and knows its memory from the page alone.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static unsigned char *pool;
static uint64_t size, steps, state;

static uint64_t random64(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state * 0x2545f4914f6cdd1dULL;
}
static uint64_t below(uint64_t limit) { return random64() % limit; }

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Busy, so that it does not depend on how a timer is rounded. */
static void hold(uint64_t nanoseconds) {
    for (uint64_t end = now() + nanoseconds; now() < end;)
        ;
}

static _Atomic uint64_t *word(uint64_t offset) {
    return (_Atomic uint64_t *)(void *)(pool + (offset & ~7ULL) % size);
}
static uint64_t get(uint64_t offset) {
    return atomic_load_explicit(word(offset), memory_order_relaxed);
}
static void put(uint64_t offset, uint64_t value) {
    atomic_store_explicit(word(offset), value, memory_order_relaxed);
    steps++;
}

/* What the superblock says of the tables: offset, entries, bytes of an entry. */
struct table {
    uint64_t at, count, entry;
};
enum { MEMBERS, PROCS, WAITERS, SEGMENTS, SETS, QUEUES, BUCKETS };
static struct table tables[9];
static uint64_t small_words, small, small_count, page_words, pages;

static void learn(void) {
    static const uint64_t entries[9] = {64, 128, 256, 128, 192, 256, 8, 8, 8};
    for (int i = 0; i < 9; i++)
        tables[i] =
            (struct table){get(32 + 16 * (uint64_t)i), get(40 + 16 * (uint64_t)i), entries[i]};
    small_words = get(32 + 18 * 8);
    small = get(32 + 19 * 8);
    small_count = get(32 + 20 * 8);
    page_words = get(32 + 21 * 8);
    pages = get(32 + 22 * 8);
}

/* Most of what is in use has a low index. */
static uint64_t low(uint64_t count) {
    uint64_t few = count < 12 ? count : 12;
    return below(8) ? below(few ? few : 1) : below(count ? count : 1);
}

/* A word that means something. */
static uint64_t target(void) {
    switch (below(16)) {
    case 0:
        return below(1024); /* the superblock: for who opens it later */
    case 1:
    case 2:
        return 1024 + below(3072); /* the root */
    case 3:
        return 4096 + below(256); /* the pool's log */
    case 4:
        return small_words + 4 * below(256);
    case 5:
        return page_words + 4 * below(256);
    case 6:
    case 7:
    case 8:
        return small + below(64 * 256); /* semaphores, logs, records, small rings */
    case 9:
        return pages + below(64 * 4096); /* rings and segments */
    default: {
        const struct table *t = &tables[below(9)];
        return t->at + low(t->count) * t->entry + below(t->entry);
    }
    }
}

static uint64_t evil(uint64_t good) {
    const uint64_t bit = 1ULL << below(64);
    switch (below(20)) {
    case 0:
        return 0;
    case 1:
        return 1;
    case 2:
        return UINT64_MAX;
    case 3:
        return bit;
    case 4:
        return good ^ bit;
    case 5:
        return good + 1;
    case 6:
        return good - 1;
    case 7:
        return good + (8ULL << below(10));
    case 8:
        return good - (8ULL << below(10));
    case 9:
        return size;
    case 10:
        return size - (8ULL << below(10));
    case 11:
        return below(size) & ~0xfULL;
    case 12:
        return small + 256 * below(small_count ? small_count : 1);
    case 13:
        return (good & 0xffffffff00000000ULL) | (uint32_t)random64();
    case 14:
        return (good & 0xffffffffULL) | random64() << 32;
    case 15:
        return below(64);
    case 16:
        return get(target()); /* somebody else's */
    case 17:
        return (good & ~0xffffULL) | below(0x10000);
    case 18:
        return (good << 32) | good >> 32;
    default:
        return random64();
    }
}

/* Another word for a moment, so short that it is met by who is there just then. */
static void visit(void) {
    const uint64_t at = target(), good = get(at);
    put(at, evil(good));
    hold(below(20000));
    put(at, good);
}

/* Two words in turn. */
static void flutter(void) {
    const uint64_t at = target(), good = get(at), bad = evil(good), times = 500 + below(20000);
    for (uint64_t i = 0; i < times; i++) {
        put(at, bad);
        put(at, good);
    }
}

/* A record as it was a while ago. */
static void replay(void) {
    unsigned char before[512];
    const uint64_t at = target() & ~7ULL, len = 8 + (below(sizeof before - 8) & ~7ULL);
    if (at + len > size)
        return;
    memcpy(before, pool + at, len);
    hold(below(300000));
    for (uint64_t i = 0; i < len; i += 8) {
        uint64_t old;
        memcpy(&old, before + i, 8);
        put(at + i, old);
    }
}

/* A construct that is in use seems to be larger than it is, or smaller: what its users have room
 * for is what they were told. */
static void lie(void) {
    const uint64_t kind = SEGMENTS + below(2);
    const struct table *t = &tables[kind];
    for (uint64_t i = 0; i < 12 && i < t->count; i++) {
        const uint64_t entry = t->at + i * t->entry;
        if ((get(entry) & 0xffffffff) == 0 || below(3))
            continue;
        const uint64_t first = get(entry + 48), second = get(entry + 56);
        if (kind == SETS) {
            const uint64_t count = get(entry + 40);
            put(entry + 40, below(4) ? count + 1 + below(20000) : below(count + 1));
            hold(below(400000));
            put(entry + 40, count);
        } else { /* pages and bytes, which agree */
            const uint64_t more = below(4) ? first + 1 + below(64) : 1 + below(first + 1);
            put(entry + 48, more);
            put(entry + 56, more * 4096);
            hold(below(400000));
            put(entry + 48, first);
            put(entry + 56, second);
        }
    }
}

/* And what stays. */
static void damage(void) {
    const uint64_t at = target();
    put(at, evil(get(at)));
}
static void scribble(void) {
    for (uint64_t i = below(64); i > 0; i--) {
        const uint64_t at = below(size);
        put(at, evil(get(at)));
    }
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: enemy POOL SECONDS SEED\n");
        return 2;
    }
    const int fd = open(argv[1], O_RDWR | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0) {
        perror(argv[1]);
        return 2;
    }
    size = (uint64_t)st.st_size;
    pool = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (pool == MAP_FAILED) {
        perror("mmap");
        return 2;
    }
    learn();
    state = strtoull(argv[3], NULL, 0) * 0x9e3779b97f4a7c15ULL + 1;
    const uint64_t begun = now(), length = (uint64_t)(strtod(argv[2], NULL) * 1e9);
    /* What stays comes late, and then more and more: a pool in ruins is soon no work for anybody.
     */
    for (uint64_t passed = 0; passed < length; passed = now() - begun) {
        const uint64_t kind = below(100);
        if (kind < 50)
            visit();
        else if (kind < 65)
            flutter();
        else if (kind < 75)
            replay();
        else if (kind < 90)
            lie();
        else if (passed > length / 2 && kind < 99)
            damage();
        else if (passed > length * 3 / 4)
            scribble();
    }
    printf("%llu\n", (unsigned long long)steps);
    return 0;
}
