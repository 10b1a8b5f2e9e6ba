/* probe: what paper 000's tuner finds out of a system before it tunes, as ATLAS does: by timing.
 *
 * Prints "WHAT 0 VALUE" lines:
 *   l1, l2           bytes of the caches of data: where the time of a dependent load rises
 *   registers        integers that a loop keeps without storing any
 *   fpu-registers    doubles that it keeps
 *   fpu-pipeline     additions that are under way at a time: so many independent ones are as fast
 * as more fpu-rate         Mflop/s of products and sums from register to register
 *
 * Each is the best of several rounds, so that what else the machine does counts less. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

enum { ROUNDS = 7, MOST = 40, LINE = 64, LOADS = 1 << 17, TURNS = 20000 };
/* So much longer than before is another level. */
static const double STEP = 1.35;
/* So much longer per operation than the best is no longer as fast. */
static const double NEAR = 1.12;

static double now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* Loops over R values of a type, each of which is changed by one operation in each turn. What a
 * loop can't keep in registers it loads and stores. */
#define LOOP(NAME, TYPE, REGISTER, STATEMENT, R)                                                   \
    static double NAME##R(TYPE y, TYPE z) {                                                        \
        TYPE x[R];                                                                                 \
        _Pragma("GCC unroll 64") for (int i = 0; i < R; i++) x[i] = (TYPE)i;                       \
        const double began = now_ns();                                                             \
        for (int turn = 0; turn < TURNS; turn++) {                                                 \
            _Pragma("GCC unroll 64") for (int i = 0; i < R; i++) {                                 \
                STATEMENT;                                                                         \
                __asm__ volatile("" : "+" REGISTER(x[i]) : REGISTER(y), REGISTER(z));              \
            }                                                                                      \
        }                                                                                          \
        const double took = now_ns() - began;                                                      \
        _Pragma("GCC unroll 64") for (int i = 0; i < R;                                            \
                                      i++) __asm__ volatile("" : : REGISTER(x[i]));                \
        return took / TURNS / R;                                                                   \
    }
#define TEN(M, T) M(T##1) M(T##2) M(T##3) M(T##4) M(T##5) M(T##6) M(T##7) M(T##8) M(T##9)
#define EACH(M) TEN(M, ) M(10) TEN(M, 1) M(20) TEN(M, 2) M(30) TEN(M, 3) M(40)

#define INTEGER(R) LOOP(integer, uint64_t, "r", x[i] = (x[i] ^ y) + z, R)
#define SUM(R) LOOP(sum, double, "x", x[i] = x[i] + y, R)
/* The cheapest operation: additions leave the processor time to store as many. */
#define KEPT(R) LOOP(kept, double, "x", __asm__ volatile("xorps %1, %0" : "+x"(x[i]) : "x"(y)), R)
#define BOTH(R) LOOP(both, double, "x", x[i] = x[i] * y + z, R)
EACH(INTEGER)
EACH(SUM)
EACH(KEPT)
EACH(BOTH)

#define NAME_INTEGER(R) integer##R,
#define NAME_SUM(R) sum##R,
#define NAME_KEPT(R) kept##R,
#define NAME_BOTH(R) both##R,
typedef double loop(double, double);
static double (*const of_integers[MOST])(uint64_t, uint64_t) = {EACH(NAME_INTEGER)};
static loop *const of_sums[MOST] = {EACH(NAME_SUM)};
static loop *const of_kept[MOST] = {EACH(NAME_KEPT)};
static loop *const of_both[MOST] = {EACH(NAME_BOTH)};

static double least(double a, double b) { return b == 0 || a < b ? a : b; }

/* The nanoseconds of an operation by 1 to MOST of them in a turn: of doubles, or else of integers.
 */
static void times(double ns[MOST], loop *const *of_doubles) {
    for (int i = 0; i < MOST; i++)
        ns[i] = 0;
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < MOST; i++)
            ns[i] = least(of_doubles ? of_doubles[i](0.999999, 1e-9) : of_integers[i](3, 1), ns[i]);
}

static double best(const double ns[MOST]) {
    double found = ns[0];
    for (int i = 1; i < MOST; i++)
        found = least(ns[i], found);
    return found;
}

/* The first that is as fast as any. */
static int first_near(const double ns[MOST]) {
    const double limit = best(ns) * NEAR;
    for (int i = 0; i < MOST; i++)
        if (ns[i] <= limit)
            return i + 1;
    return MOST;
}

/* The last before all take longer. */
static int last_near(const double ns[MOST]) {
    const double limit = best(ns) * NEAR;
    for (int i = MOST; i > 0; i--)
        if (ns[i - 1] <= limit)
            return i;
    return 1;
}

/* The nanoseconds of a load that depends on the one before, within so many bytes, in an order that
 * nothing foresees. */
static double load_ns(char *memory, size_t bytes) {
    const size_t lines = bytes / LINE;
    uint64_t random = 88172645463325252;
    uint32_t *order = malloc(lines * sizeof *order);
    if (order == NULL)
        abort();
    for (size_t i = 0; i < lines; i++)
        order[i] = (uint32_t)i;
    for (size_t i = lines - 1; i > 0; i--) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        size_t other = random % (i + 1);
        uint32_t swapped = order[i];
        order[i] = order[other];
        order[other] = swapped;
    }
    for (size_t i = 0; i < lines; i++)
        *(void **)(memory + (size_t)order[i] * LINE) =
            memory + (size_t)order[(i + 1) % lines] * LINE;
    free(order);
    double found = 0;
    for (int round = 0; round < ROUNDS; round++) {
        void **at = (void **)memory;
        const double began = now_ns();
        for (int i = 0; i < LOADS; i++)
            at = *at;
        __asm__ volatile("" : : "r"(at));
        found = least((now_ns() - began) / LOADS, found);
    }
    return found;
}

/* From 4 KiB to 16 MiB, four steps to a power of two; the last one before the time of a load rises.
 */
static void caches(void) {
    enum { STEPS = 12 * 4 + 1 };
    const size_t most = 16 << 20;
    char *memory = mmap(NULL, most, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        abort();
    madvise(memory, most, MADV_HUGEPAGE); /* or the TLB is what is found */
    size_t size[STEPS];
    double ns[STEPS];
    for (int i = 0; i < STEPS; i++) {
        size[i] = ((size_t)1024 << i / 4) * (size_t)(4 + i % 4);
        ns[i] = load_ns(memory, size[i]);
    }
    int l1 = 0;
    while (l1 + 1 < STEPS && ns[l1 + 1] <= STEP * ns[0])
        l1++;
    /* Of the second level what the first can't help with: twice as much and more. */
    int l2 = l1 + 4 < STEPS ? l1 + 4 : STEPS - 1;
    const double level = ns[l2];
    while (l2 + 1 < STEPS && ns[l2 + 1] <= STEP * level)
        l2++;
    printf("l1 0 %zu\nl2 0 %zu\n", size[l1], size[l2]);
    munmap(memory, most);
}

int main(void) {
    double ns[MOST];
    /* An emulator computes by the host's processor once a result was inexact, and else slowly. */
    volatile double third = 1;
    third /= 3;
    caches();
    times(ns, NULL);
    printf("registers 0 %d\n", last_near(ns));
    times(ns, of_kept);
    printf("fpu-registers 0 %d\n", last_near(ns));
    times(ns, of_sums);
    printf("fpu-pipeline 0 %d\n", first_near(ns));
    times(ns, of_both);
    printf("fpu-rate 0 %.6g\n", 2e3 / best(ns));
    return 0;
}
