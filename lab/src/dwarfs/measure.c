/* DWARF-MODEL [-k KEY] [-p PROCESSES] [-t SECONDS] WHAT SIZE [WHAT SIZE]...
 * DWARF-MODEL [-k KEY] [-p PROCESSES] -s apart|together WHAT SIZE: see dwarf.h.
 *
 * Prints the median nanoseconds of a run of each, and the answer of the last run. With -s what the
 * first member takes to join the team, to set the dwarf up and to remove all of it again: by
 * itself, or together with one run. A process does that once. */
#define _GNU_SOURCE
#include "dwarf.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST = 4096 };
/* Batches of runs are at least so long, that reading the clock costs nothing to speak of. */
static const double BATCH = 50e3;
/* A run that takes so long is measured once. */
static const double LONG = 500e6;

void die(const char *what) {
    fprintf(stderr, "dwarf: %s: %s\n", what, strerror(errno));
    exit(1);
}

void *own_memory(size_t size) {
    void *memory = calloc(1, size ? size : 1);
    if (memory == NULL)
        die("calloc");
    return memory;
}

struct part part_of(size_t n, int number, int of) {
    size_t each = n / (size_t)of, more = n % (size_t)of, i = (size_t)number;
    size_t from = i * each + (i < more ? i : more);
    return (struct part){from, from + each + (i < more)};
}

double checksum(const double *values, size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += (double)(1 + i % 31) * values[i];
    return sum;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void run(uint64_t times) {
    for (uint64_t i = 0; i < times; i++)
        dwarf_run();
}

/* How many runs a batch has: all members do as many. */
static uint64_t runs_of_a_batch(double *ns) {
    for (uint64_t runs = 1;; runs *= 2) {
        team_barrier();
        double began = clock_ns();
        run(runs);
        *ns = clock_ns() - began;
        if (team_tell(*ns >= BATCH))
            return runs;
    }
}

/* The median time of a run; of one that takes long, the time of the second one. */
static double measure(double seconds) {
    static double sample[MOST];
    double began = clock_ns(), ns;
    run(1); /* warms up */
    if (team_tell(clock_ns() - began >= LONG)) {
        team_barrier();
        began = clock_ns();
        run(1);
        return clock_ns() - began;
    }
    uint64_t runs = runs_of_a_batch(&ns);
    double fitting = seconds * 1e9 / ns;
    uint64_t batches = team_tell(fitting < 1 ? 1 : fitting > MOST ? MOST : (uint64_t)fitting);
    team_barrier();
    for (uint64_t i = 0; i < batches; i++) {
        began = clock_ns();
        run(runs);
        sample[i] = (clock_ns() - began) / (double)runs;
    }
    qsort(sample, batches, sizeof *sample, by_value);
    return batches % 2 ? sample[batches / 2] : (sample[batches / 2 - 1] + sample[batches / 2]) / 2;
}

static void tell(char **problem, double ns, double answer) {
    if (team_rank == 0) {
        printf("%s %s %.6g %.17g\n", problem[0], problem[1], ns, answer);
        fflush(stdout);
    }
}

/* All of a job, of which a process has one. */
static void once(char **problem, double joined, int with_run) {
    double began = clock_ns();
    dwarf_set_up(problem[0], strtoul(problem[1], NULL, 10));
    double ns = joined + clock_ns() - began;
    team_barrier();
    began = clock_ns();
    dwarf_run();
    ns += with_run ? clock_ns() - began : 0;
    double answer = dwarf_answer();
    team_barrier();
    began = clock_ns();
    dwarf_tear_down();
    team_leave();
    tell(problem, ns + clock_ns() - began, answer);
}

int main(int argc, char **argv) {
    double seconds = 0.05;
    unsigned key = 0x44570000;
    const char *set_up = NULL;
    int option, size = 1;
    while ((option = getopt(argc, argv, "+k:p:s:t:")) != -1) {
        if (option == 'k')
            key = (unsigned)strtoul(optarg, NULL, 0);
        else if (option == 'p')
            size = atoi(optarg);
        else if (option == 's')
            set_up = optarg;
        else if (option == 't')
            seconds = atof(optarg);
        else
            return 2;
    }
    if (optind == argc || (argc - optind) % 2 || size < 1) {
        fprintf(stderr, "dwarf: pairs of WHAT SIZE are needed\n");
        return 2;
    }
    int with_run = set_up != NULL && strcmp(set_up, "together") == 0;
    if (set_up != NULL && (argc - optind != 2 || (!with_run && strcmp(set_up, "apart") != 0))) {
        fprintf(stderr, "dwarf: -s is apart or together, of one WHAT SIZE\n");
        return 2;
    }
    /* An emulator computes by the host's processor once a result was inexact, and else slowly. */
    volatile double third = 1;
    third /= 3;
    double joined = team_join(&argc, &argv, key, size);
    if (set_up != NULL) {
        once(argv + optind, joined, with_run);
        return 0;
    }
    for (int i = optind; i < argc; i += 2) {
        dwarf_set_up(argv[i], strtoul(argv[i + 1], NULL, 10));
        double ns = measure(seconds), answer = dwarf_answer();
        tell(argv + i, ns, answer);
        team_barrier();
        dwarf_tear_down();
    }
    team_leave();
    return 0;
}
