/* Deduplication, in OpenMP: data is cut where a rolling hash says, and each chunk that has not been
 * seen yet is compressed by zlib. A size counts KiB. */
#include "dwarf.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { BLOCK = 4096, WINDOW = 32, CUT_BITS = 11, BUCKETS = 4096, AT_A_TIME = 16 };

struct chunk {
    const unsigned char *at;
    size_t size;
    uint64_t hash;
    struct chunk *next;
};

static size_t n, chunks;
static unsigned char *data, *cut;
static struct chunk *all;
static struct chunk *table[BUCKETS];
static omp_lock_t locks[BUCKETS];
static uint64_t distinct, length;
static volatile uint64_t packed;

static uint32_t scattered(uint32_t i) { return i * 2654435761u; }

/* Blocks, half of which were there before; of a few letters, so that they can be compressed. */
void dwarf_set_up(const char *what, size_t size) {
    (void)what;
    n = size * 1024;
    data = own_memory(n);
    cut = own_memory(n);
    uint32_t blocks = (uint32_t)((n + BLOCK - 1) / BLOCK), kinds = blocks / 2 + 1;
    for (size_t i = 0; i < n; i++) {
        uint32_t kind = scattered((uint32_t)(i / BLOCK)) % kinds;
        data[i] = (unsigned char)(scattered(kind * BLOCK + (uint32_t)(i % BLOCK)) >> 27);
    }
    for (size_t i = 0; i < BUCKETS; i++)
        omp_init_lock(&locks[i]);
}

/* Marks the last byte of each chunk; a byte leaves the hash when it has been shifted out of it. */
static void mark(struct part part) {
    uint32_t hash = 0;
    for (size_t i = part.from < WINDOW ? 0 : part.from - WINDOW; i < part.to; i++) {
        hash = (hash << 1) + scattered(data[i] + 1u);
        if (i >= part.from)
            cut[i] = hash >> (32 - CUT_BITS) == 0 || i == n - 1;
    }
}

static void list_chunks(void) {
    chunks = 0;
    for (size_t i = 0; i < n; i++)
        chunks += cut[i];
    all = own_memory(chunks * sizeof *all);
    struct chunk *one = all;
    for (size_t i = 0, from = 0; i < n; i++) {
        if (!cut[i])
            continue;
        one->at = data + from;
        one->size = i + 1 - from;
        from = i + 1;
        one++;
    }
}

/* Whether a chunk is the first of its kind; it is known from then on. */
static int is_new(struct chunk *one) {
    one->hash = 14695981039346656037u; /* FNV-1a */
    for (size_t i = 0; i < one->size; i++)
        one->hash = (one->hash ^ one->at[i]) * 1099511628211u;
    size_t bucket = one->hash % BUCKETS;
    omp_set_lock(&locks[bucket]);
    struct chunk *other = table[bucket];
    while (other != NULL && (other->hash != one->hash || other->size != one->size ||
                             memcmp(other->at, one->at, one->size) != 0))
        other = other->next;
    if (other == NULL) {
        one->next = table[bucket];
        table[bucket] = one;
    }
    omp_unset_lock(&locks[bucket]);
    return other == NULL;
}

static uint64_t compressed(const struct chunk *one) {
    uLongf size = compressBound(one->size);
    unsigned char *out = own_memory(size);
    if (compress2(out, &size, one->at, one->size, Z_DEFAULT_COMPRESSION) != Z_OK)
        die("compress2");
    free(out);
    return size;
}

void dwarf_run(void) {
    uint64_t count = 0, bytes = 0, size = 0;
    memset(table, 0, sizeof table);
#pragma omp parallel
    mark(part_of(n, omp_get_thread_num(), omp_get_num_threads()));
    free(all);
    list_chunks();
#pragma omp parallel for schedule(dynamic, AT_A_TIME) reduction(+ : count, bytes, size)
    for (size_t i = 0; i < chunks; i++) {
        if (!is_new(&all[i]))
            continue;
        count++;
        bytes += all[i].size;
        size += compressed(&all[i]);
    }
    distinct = count, length = bytes, packed = size;
}

double dwarf_answer(void) { return checksum((double[]){(double)distinct, (double)length}, 2); }

void dwarf_tear_down(void) {
    for (size_t i = 0; i < BUCKETS; i++)
        omp_destroy_lock(&locks[i]);
    free(all);
    all = NULL;
    free(cut);
    free(data);
}
