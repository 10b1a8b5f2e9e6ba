/* The papers' Raw and Sync: two processes take turns in a segment by busy waiting, without calls.
 *
 *   busypong [-k KEY] [-n TURNS] METHOD SIZE [METHOD SIZE]...
 *
 * The same command is started twice, anywhere. METHOD is
 *   raw      one shared flag says whose turn it is (SIZE is ignored)
 *   bakery   P and V on an integer that Lamport's bakery guards: loads, stores and fences only
 *   swap     P and V on an integer by compare-and-swap
 * As in paper 004's figure 6 each side does P(own), memset(region, own number, SIZE), V(other's);
 * SIZE may be 0. A turn is one of both sides, there and back.
 *
 * The process that makes the segment leads: it prints a line for each METHOD SIZE, "METHOD SIZE
 * NANOSECONDS 1", the mean of all TURNS (100,000, as paper 004), and removes the segment. All that
 * is called is shmget, shmat and shmctl, and none of it while turns are taken.
 */
#define _GNU_SOURCE
#include "bench.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/shm.h>
#include <time.h>
#include <unistd.h>

enum { LARGEST = 1 << 20, SIDES = 2, WARM_UP = 1000 };

/* A semaphore on an integer; what the bakery needs is beside it. */
struct counter {
    _Alignas(128) atomic_int value;
    atomic_int choosing[SIDES];
    atomic_uint ticket[SIDES];
};

struct segment {
    _Alignas(128) atomic_int turn;            /* of raw */
    _Alignas(128) atomic_uint arrived[SIDES]; /* how many methods each side has begun */
    struct counter counter[SIDES];
    _Alignas(128) unsigned char region[LARGEST];
};

struct game {
    struct segment *segment;
    int me; /* 0 leads */
    size_t size;
};

static void rest(void) { __builtin_ia32_pause(); }

static int load(atomic_int *word) { return atomic_load_explicit(word, memory_order_acquire); }

static unsigned ticket(const struct counter *c, int side) {
    return atomic_load_explicit(&c->ticket[side], memory_order_acquire);
}

/* Lamport's bakery for two. The fences keep a processor from reading the other side's words before
 * its own are to be seen. */
static void enter(struct counter *c, int me) {
    atomic_store_explicit(&c->choosing[me], 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
    unsigned theirs = ticket(c, !me), mine = theirs + 1;
    atomic_store_explicit(&c->ticket[me], mine, memory_order_release);
    atomic_store_explicit(&c->choosing[me], 0, memory_order_release);
    atomic_thread_fence(memory_order_seq_cst);
    while (load(&c->choosing[!me]))
        rest();
    for (;;) {
        theirs = ticket(c, !me);
        if (theirs == 0 || theirs > mine || (theirs == mine && me == 0))
            return;
        rest();
    }
}

static void leave(struct counter *c, int me) {
    atomic_store_explicit(&c->ticket[me], 0, memory_order_release);
}

static void bakery_p(struct counter *c, int me) {
    for (;;) {
        enter(c, me);
        int value = atomic_load_explicit(&c->value, memory_order_relaxed);
        if (value > 0)
            atomic_store_explicit(&c->value, value - 1, memory_order_relaxed);
        leave(c, me);
        if (value > 0)
            return;
        rest();
    }
}

static void bakery_v(struct counter *c, int me) {
    enter(c, me);
    int value = atomic_load_explicit(&c->value, memory_order_relaxed);
    atomic_store_explicit(&c->value, value + 1, memory_order_relaxed);
    leave(c, me);
}

static void swap_p(struct counter *c, int me) {
    (void)me;
    for (;;) {
        int value = load(&c->value);
        if (value > 0 && atomic_compare_exchange_strong(&c->value, &value, value - 1))
            return;
        rest();
    }
}

static void swap_v(struct counter *c, int me) {
    (void)me;
    int value = load(&c->value);
    while (!atomic_compare_exchange_strong(&c->value, &value, value + 1))
        rest();
}

/* Marks the region as this side's. The other side's mark must be there: a P that lets both in, or
 * none of the other's turns between two of ours, would be noticed. */
static void visit(struct game *g, int first) {
    unsigned char *region = g->segment->region;
    if (g->size == 0)
        return;
    if (!first && (region[0] != !g->me || region[g->size - 1] != !g->me)) {
        fprintf(stderr, "busypong: side %d has got the turn, and the other has not had it\n",
                g->me);
        exit(1);
    }
    memset(region, g->me, g->size);
}

static void raw_turns(struct game *g, unsigned count) {
    atomic_int *turn = &g->segment->turn;
    for (unsigned i = 0; i < count; i++) {
        while (load(turn) != g->me)
            rest();
        atomic_store_explicit(turn, !g->me, memory_order_release);
    }
}

typedef void (*change)(struct counter *, int me);

static inline __attribute__((always_inline)) void take_turns(struct game *g, unsigned count,
                                                             change p, change v) {
    struct counter *mine = &g->segment->counter[g->me], *theirs = &g->segment->counter[!g->me];
    for (unsigned i = 0; i < count; i++) {
        p(mine, g->me);
        visit(g, i == 0);
        v(theirs, g->me);
    }
}

static void bakery_turns(struct game *g, unsigned count) {
    take_turns(g, count, bakery_p, bakery_v);
}

static void swap_turns(struct game *g, unsigned count) { take_turns(g, count, swap_p, swap_v); }

/* Both sides are here, and the leader has made everything as it is before a first turn. */
static void meet(struct game *g, unsigned number) {
    struct segment *s = g->segment;
    if (g->me == 0) {
        while (atomic_load(&s->arrived[1]) != number)
            rest();
        atomic_store(&s->turn, 0);
        atomic_store(&s->counter[0].value, 1);
        atomic_store(&s->counter[1].value, 0);
        atomic_store(&s->arrived[0], number);
    } else {
        atomic_store(&s->arrived[1], number);
        while (atomic_load(&s->arrived[0]) != number)
            rest();
    }
}

static void (*chosen(const char *method))(struct game *, unsigned) {
    static const struct {
        const char *name;
        void (*turns)(struct game *, unsigned);
    } methods[] = {{"raw", raw_turns}, {"bakery", bakery_turns}, {"swap", swap_turns}};
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (strcmp(method, methods[i].name) == 0)
            return methods[i].turns;
    return NULL;
}

static void set_up(struct game *g, key_t key) {
    size_t size = sizeof *g->segment;
    int id = shmget(key, size, IPC_CREAT | IPC_EXCL | 0600);
    g->me = id < 0;
    if (id < 0 && errno == EEXIST)
        id = shmget(key, size, 0);
    if (id < 0)
        die("shmget");
    g->segment = shmat(id, NULL, 0);
    if (g->segment == (void *)-1)
        die("shmat");
    /* It lives for as long as both have it attached; the follower has come by its first meeting. */
    if (g->me == 0) {
        while (atomic_load(&g->segment->arrived[1]) == 0)
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        if (shmctl(id, IPC_RMID, NULL) != 0)
            die("shmctl IPC_RMID");
    } else {
        atomic_store(&g->segment->arrived[1], 1);
    }
}

static int usage(void) {
    fprintf(stderr, "busypong: pairs of METHOD SIZE are needed, raw, bakery or swap, and 0 to %d\n",
            LARGEST);
    return 2;
}

int main(int argc, char **argv) {
    struct game game = {0};
    key_t key = 0x42555359;
    unsigned turns = 100000, number = 0;
    int option;
    while ((option = getopt(argc, argv, "k:n:")) != -1) {
        if (option == 'k')
            key = (key_t)strtoul(optarg, NULL, 0);
        else if (option == 'n')
            turns = (unsigned)strtoul(optarg, NULL, 10);
        else
            return 2;
    }
    if (turns == 0 || optind == argc || (argc - optind) % 2 != 0)
        return usage();
    for (int i = optind; i < argc; i += 2)
        if (chosen(argv[i]) == NULL || strtoul(argv[i + 1], NULL, 10) > LARGEST)
            return usage();
    set_up(&game, key);
    for (int i = optind; i < argc; i += 2) {
        void (*play)(struct game *, unsigned) = chosen(argv[i]);
        game.size = strtoul(argv[i + 1], NULL, 10);
        meet(&game, ++number);
        play(&game, WARM_UP);
        meet(&game, ++number);
        uint64_t began = now_ns();
        play(&game, turns);
        if (game.me == 0)
            printf("%s %zu %.4f 1\n", argv[i], game.size,
                   (double)(now_ns() - began) / (double)turns);
    }
    return 0;
}
