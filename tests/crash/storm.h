/*
 * Kill storms: workers use System V IPC objects while they are killed at random times; what is left
 * must be what their deaths imply. In some scenarios a few of them are survivors: they are stopped
 * and interrupted, but not killed before a round is over, and what they hold is counted. The engine
 * is in storm.c, what workers do and what must hold is in the scenarios.
 */
#ifndef STORM_H
#define STORM_H

#include "../conformance/tests.h"
#include <stdatomic.h>

enum {
    WORKERS = 6,
    /* So many in a round, which is over soon after two thirds of them. */
    MOST_LIVES = 60000,
    /* Seconds without any progress that count as stuck. */
    STUCK_AFTER = 20
};

/* One life of a worker. */
struct life {
    int slot;
    /* Which life this is, over all workers; never 0. */
    unsigned number;
    unsigned random;
};

/* What the engine and the workers share, in memory that no IPC object has a part in. */
struct board {
    /* Set for a life before it is killed. */
    _Atomic unsigned char condemned[MOST_LIVES];
    _Atomic unsigned long progress;
    _Atomic unsigned long kills[WORKERS];
    /* Survivors are to come to rest; those who have. */
    _Atomic int pause;
    _Atomic int resting[WORKERS];
};

struct scenario {
    const char *name;
    /* Makes the IPC objects. */
    void (*begin)(void);
    /* What a worker does until it dies; if it returns the worker exits properly. */
    void (*work)(struct life *life);
    /* All workers but the survivors are dead, and those rest if they live: what must hold. May be
     * called several times in a round. */
    void (*check)(void);
    /* Removes the IPC objects. */
    void (*end)(void);
    /* Workers in the first so many slots are survivors. */
    int survivors;
    /* The others are dead: helps survivors to rest who wait for what may never come. */
    void (*rouse)(void);
};

extern struct board *board;
extern const struct scenario undo_scenario, mutex_scenario, whole_scenario, queue_scenario,
    segment_scenario, churn_scenario, holders_scenario, letters_scenario;

/* A number below the limit. */
static inline unsigned below(struct life *life, unsigned limit) {
    life->random ^= life->random << 13;
    life->random ^= life->random >> 17;
    life->random ^= life->random << 5;
    return life->random % limit;
}

static inline void note_progress(void) { atomic_fetch_add(&board->progress, 1); }

/* A survivor that is asked to rests here. */
void rest(const struct life *life);

/* Zeroed memory that forked workers share, until the round is over. */
void *shared_memory(size_t size);

/* In account.c. How much there is room for, and that nothing is left that a program can see. */
int capacity(void);
void nothing_is_left(void);

#endif
