/* What the dwarfs share: a DWARF-MODEL program has a file of each part.
 *
 *   measure.c       times runs, prints "WHAT SIZE NANOSECONDS ANSWER" lines; knows neither
 *   team-MODEL.c    who takes part: processes, how they meet, memory that they share
 *   DWARF-MODEL.c   the dwarf, written as one writes it in this model
 *   DWARF.c         its arithmetic, the same for all models
 *
 * A run begins with the operands where a step before it would have left them, and ends with the
 * whole result at the first process. What the answer is made of depends on all of the result.
 */
#ifndef DWARF_H
#define DWARF_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* The BLAS dwarf is compiled for each. */
#ifndef REAL
#define REAL double
#endif

/* From `from` up to `to`, without it. */
struct part {
    size_t from, to;
};

/* The share of one of `of` processes in n; shares differ by one at most. */
struct part part_of(size_t n, int number, int of);

/* Nanoseconds of the monotonic clock. */
static inline double clock_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* Ends the program with "what: reason of errno". */
void die(const char *what) __attribute__((noreturn));

/* Zeroed memory of this process's own. */
void *own_memory(size_t size);

/* A sum with weights, so that values that are missing, stale or in each other's place show. */
double checksum(const double *values, size_t count);

/* The model: how processes are a team. The threads of OpenMP are no members of it. */
extern int team_rank, team_size;
/* The nanoseconds that joining takes, but for waiting until others come, where that can be told:
 * an MPI starts by waiting. */
double team_join(int *argc, char ***argv, unsigned key, int size);
void team_leave(void);
/* Waits for all. */
void team_barrier(void);
/* Each value becomes the sum of all members'; there are at most SUMS. */
enum { SUMS = 2 };
void team_sum(double *values, size_t count);
/* The first member's value, at all. */
uint64_t team_tell(uint64_t value);
/* Zeroed memory: shared where the model shares memory, else of each member's own. All members ask
 * for as much, one call at a time. */
void *team_memory(size_t size);
void team_free(void *memory);

/* The dwarf: `what` is one of its kinds. Each is called by all members. */
void dwarf_set_up(const char *what, size_t size);
void dwarf_run(void);
/* Of the last run; only the first member's counts. */
double dwarf_answer(void);
void dwarf_tear_down(void);

#endif
