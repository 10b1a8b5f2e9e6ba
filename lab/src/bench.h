/* What the benchmarks share: time, processors, processes, and the form of a result.
 *
 * Every benchmark is a function of main.c's table. It uses System V calls (or plain mmap, for the
 * floor it is compared with) and prints its result by `report`. It never knows whether the kernel
 * or an interposer serves the calls.
 */
#ifndef BENCH_H
#define BENCH_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Seconds that a measurement lasts. */
extern double bench_seconds;

/* Nanoseconds of the monotonic clock. */
uint64_t now_ns(void);

/* Ends the program with "what: reason of errno". */
void die(const char *what) __attribute__((noreturn));

/* Obeys a program's options: -t SECONDS a measurement, -u USER to become (root measures as the
 * ordinary one that programs are run by), and -l, which calls `list` and ends the program. Returns
 * the index of the first word behind them, or -1 if there are others. */
int options(int argc, char **argv, void (*list)(void));

/* Binds the calling process to the n-th processor that it may use (modulo their number). */
void pin(int n);

/* How many processors this process may use. */
int processors(void);

/* Shared zeroed memory, inherited by fork: what the floor and the benchmarks' own flags live in. */
void *shared_memory(size_t size);

/* Forks; the child runs fn(arg), and leaves by _exit(0) with its System V exit work done. */
pid_t child(void (*fn)(void *), void *arg);

/* Waits for a child and ends the program if it failed. */
void join(pid_t pid);

/* Performs n operations. */
typedef void (*batch_fn)(void *arg, uint64_t n);

/* Repeats batches of about 2 ms for bench_seconds; the median of nanoseconds per operation. */
double median_ns(batch_fn fn, void *arg);

/* The median of n values; sorts them. */
double median(double *values, size_t n);

/* Prints one result: a number and its unit. */
void report(double value, const char *unit);

/* Times single operations for a quarter of bench_seconds, and prints " P50 P99 P99.9" in
 * nanoseconds: a dash where there were too few of them, or reading the clock takes more than a
 * quarter of one. */
void print_tail(batch_fn fn, void *arg);

/* The same of samples that were taken otherwise; sorts them. */
void print_percentiles(double *sample, size_t count);

/* Uncontended and shared System V helpers that several benchmarks need; they die on an error. */
int make_semaphores(int count, int mode);
void remove_semaphores(int id);
void sem_add(int id, int number, int delta, int flags);
int make_queue(int mode);
void remove_queue(int id);

/* A message with room for the largest payload that is benchmarked. */
enum { MESSAGE_MAX = 8192 };
struct message {
    long type;
    char text[MESSAGE_MAX];
};

/* The benchmarks; `argument` is the word after the name. */
int bench_memory(const char *argument);
int bench_semaphore(const char *argument);
int bench_queue(const char *argument);
int bench_handover(const char *argument);
int bench_stream(const char *argument);
int bench_segment(const char *argument);
int bench_doubled(const char *argument);
int bench_lookup(const char *argument);
int bench_crowd(const char *argument);
int bench_sleeper(const char *argument);
int bench_process(const char *argument);

#endif
