/*
 * enemy POOL SECONDS SEED: a hostile member. Maps a pool and writes to it whatever may hurt those
 * who use it, blind and knowing docs/layout.md, most of it for some moments only, so that the
 * others go on and meet it between a check and a use; and with structure: lists that lead back to
 * themselves, numbers whose product is out of bounds, locks that are somebody else's all the time.
 * Prints how many words it has written.
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
/* 0 stands for 2^64. */
static uint64_t below(uint64_t limit) { return limit ? random64() % limit : random64(); }

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
    return below(8) ? below(few) : below(count);
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
        return small + 256 * below(small_count);
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

/* An IPC object that is in use seems to be larger than it is, or smaller: what its users have room
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

/* Words that belong together, and what they were before. */
static struct { uint64_t at, good; } forged[512];
static unsigned forgeries;

static void forge(uint64_t at, uint64_t value) {
    if (forgeries == sizeof forged / sizeof *forged)
        return;
    forged[forgeries].at = at;
    forged[forgeries++].good = get(at);
    put(at, value);
}
static void take_back(void) {
    while (forgeries > 0) {
        forgeries--;
        put(forged[forgeries].at, forged[forgeries].good);
    }
}

static uint64_t entry(int table, uint64_t index) {
    return tables[table].at + index % tables[table].count * tables[table].entry;
}

/* Somebody's slot: of those who live, most of whom have a low one, or died. */
static uint64_t somebody(void) { return low(tables[PROCS].count); }
static uint64_t owner(uint64_t slot) { return (slot + 1) | get(entry(PROCS, slot)) >> 48 << 32; }
static uint32_t holder(uint64_t slot) {
    return 1u << 30 | (uint32_t)(get(entry(PROCS, slot)) >> 48 & 0x3fff) << 16 | (uint32_t)slot;
}

/* A lock's word in the low half of the word at this offset. */
static uint64_t lock(void) {
    const uint64_t locks[] = {1024, entry(SETS, below(4)) + 64, entry(QUEUES, below(4)) + 192};
    return locks[below(3)];
}

/* Waiters of a set or a queue, the last of whom is followed by the first. */
static void circle_of_waiters(void) {
    const uint64_t first = low(tables[WAITERS].count), second = low(tables[WAITERS].count);
    const uint64_t heads[] = {entry(SETS, low(tables[SETS].count)) + 80,
                              entry(QUEUES, low(tables[QUEUES].count)) + 200,
                              entry(QUEUES, low(tables[QUEUES].count)) + 216};
    const uint64_t status = entry(WAITERS, first) + 8;
    forge(status, (get(status) & 0xffffffff00000000ULL) | 1);
    forge(entry(WAITERS, first) + 16, second + 1);
    forge(entry(WAITERS, second) + 16, first + 1);
    forge(heads[below(3)], first + 1);
}

/* Undo or attachment records. */
static void circle_of_records(void) {
    const uint64_t head = below(2) ? entry(SETS, low(tables[SETS].count)) + 72
                                   : entry(SEGMENTS, low(tables[SEGMENTS].count)) + 112;
    const uint64_t record = get(head) ? get(head) : small + small_count / 2 * 256;
    forge(record, owner(somebody()));
    forge(record + 8, record);
    forge(head, record);
}

static void circle_of_entries(void) {
    const uint64_t kind = below(3), index = low(tables[SEGMENTS + kind].count);
    const struct table *buckets = &tables[BUCKETS + kind];
    forge(entry((int)(SEGMENTS + kind), index) + 32, index + 1);
    if (below(2)) {
        forge(1024 + 24 + kind * 40, index + 1);
        return;
    }
    for (uint64_t i = 0; i < buckets->count && i < 256; i++)
        forge(buckets->at + i * 8, index + 1);
}

static void circle_of_blocks(void) {
    const int is_small = (int)below(2);
    const uint64_t words = is_small ? small_words : page_words, order = below(28);
    const uint64_t one = below(256), other = one ^ 1, is_free = 1ULL << 62 | order << 56;
    forge(words + one * 8, (other + 1) | (other + 1) << 28 | is_free);
    forge(words + other * 8, (one + 1) | (one + 1) << 28 | is_free);
    forge(1024 + (is_small ? 368 : 144) + order * 8, one + 1);
}

/* As many as there may be, of what may be anywhere. */
static void very_many(void) {
    const uint64_t queue = entry(QUEUES, low(tables[QUEUES].count));
    const uint64_t slot = somebody();
    switch (below(4)) {
    case 0:
        forge(entry(SETS, low(tables[SETS].count)) + 40, 65535);
        break;
    case 1: {
        uint64_t cells = 1;
        while (cells < 1 << 20 && cells * 256 < small_count * 128)
            cells *= 2;
        const uint64_t ring = small + small_count / 2 * 256;
        for (uint64_t i = 0; i < 256; i++)
            forge(ring + i * 32, 1 | 1 << 24 | (slot + 1) << 48);
        forge(queue + 48, ring);
        forge(queue + 56, cells);
        forge(queue + 64, get(queue + 128) + cells);
        break;
    }
    case 2:
        for (uint64_t kind = 0; kind < 3; kind++)
            forge(1024 + 24 + kind * 40 + 8, tables[SEGMENTS + kind].count);
        forge(1024 + 8, get(1024 + 8) | tables[PROCS].count << 32);
        forge(1024 + 16, tables[WAITERS].count);
        break;
    default:
        forge(entry(PROCS, slot) + 8, get(entry(PROCS, slot) + 8) | 1ULL << 32);
    }
}

/* The place of a retired ring leads to the same ring. */
static void circle_of_rings(void) {
    const uint64_t queue = entry(QUEUES, low(tables[QUEUES].count));
    const uint64_t ring = small + small_count / 2 * 256, slot = somebody();
    forge(ring + 64 * 96, ring | 6);
    forge(ring + 64 * 96 + 8, 1024);
    for (uint64_t i = 0; i < 60; i++) {
        forge(ring + 64 * 96 + 16 + i * 16, i);
        forge(ring + 64 * 96 + 24 + i * 16, 1 | 1 << 24 | (slot + 1) << 48);
    }
    forge(queue + 248, ring | 6);
}

/* Several of them at once. */
static void lie_with_structure(void) {
    static void (*const lies[])(void) = {circle_of_waiters, circle_of_records, circle_of_entries,
                                         circle_of_blocks,  very_many,         circle_of_rings};
    for (uint64_t i = 1 + below(3); i > 0; i--)
        lies[below(sizeof lies / sizeof *lies)]();
    hold(below(3000000));
    take_back();
}

/* A lock is somebody else's all the time. */
static void pass_a_lock_round(void) {
    const uint64_t at = lock(), slots[] = {somebody(), somebody()};
    for (uint64_t end = now() + below(30000000), i = 0; now() < end; i++) {
        put(at, (get(at) & 0xffffffff00000000ULL) | holder(slots[i % 2]));
        hold(20000);
    }
    put(at, get(at) & 0xffffffff00000000ULL);
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
        if (kind < 40)
            visit();
        else if (kind < 52)
            flutter();
        else if (kind < 60)
            replay();
        else if (kind < 72)
            lie();
        else if (kind < 86)
            lie_with_structure();
        else if (kind < 90)
            pass_a_lock_round();
        else if (passed > length / 2 && kind < 99)
            damage();
        else if (passed > length * 3 / 4)
            scribble();
    }
    printf("%llu\n", (unsigned long long)steps);
    return 0;
}
