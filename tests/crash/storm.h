/*
 * Kill storms: workers use System V constructs while they are killed at random times; what is left
 * must be what their deaths imply. The engine is in storm.c, what workers do and what must hold is
 * in the scenarios.
 */
#ifndef STORM_H
#define STORM_H

#include "../conformance/check.h"
#include <stdatomic.h>

enum {
    WORKERS = 6,
    /* More lives than a storm of an hour has. */
    MOST_LIVES = 1 << 21,
    /* Seconds without any progress that count as stuck. */
    STUCK_AFTER = 4
};

/* One life of a worker. */
struct life {
    int slot;
    /* Which life this is, over all workers; never 0. */
    unsigned number;
    unsigned random;
};

/* What the engine and the workers share, in memory that no construct has a part in. */
struct board {
    /* Set for a life before it is killed. */
    _Atomic unsigned char condemned[MOST_LIVES];
    _Atomic unsigned long progress;
    _Atomic unsigned long kills[WORKERS];
};

struct scenario {
    const char *name;
    /* Makes the constructs. */
    void (*begin)(void);
    /* What a worker does until it dies; if it returns the worker exits properly. */
    void (*work)(struct life *life);
    /* All workers are dead: what must hold. May be called several times in a storm. */
    void (*check)(void);
    /* Removes the constructs. */
    void (*end)(void);
};

extern struct board *board;
extern const struct scenario undo_scenario, mutex_scenario, whole_scenario, queue_scenario,
    segment_scenario, churn_scenario;

/* A number below the limit. */
static inline unsigned below(struct life *life, unsigned limit) {
    life->random ^= life->random << 13;
    life->random ^= life->random >> 17;
    life->random ^= life->random << 5;
    return life->random % limit;
}

static inline void note_progress(void) { atomic_fetch_add(&board->progress, 1); }

/* Zeroed memory that forked workers share. */
void *shared_memory(size_t size);

#endif
