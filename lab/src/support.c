/* Time, processors, processes and results: see bench.h. */
#define _GNU_SOURCE
#include "bench.h"

#include <errno.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

double bench_seconds = 0.2;

uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void die(const char *what) {
    fprintf(stderr, "bench: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* The ordinary user that programs are run by. */
static void become(uid_t user) {
    gid_t group = (gid_t)user;
    int signal; /* that we get when the lab ends: another user would not */
    if (prctl(PR_GET_PDEATHSIG, &signal) != 0 || setgroups(0, NULL) != 0 ||
        setresgid(group, group, group) != 0 || setresuid(user, user, user) != 0 ||
        prctl(PR_SET_DUMPABLE, 1) != 0 || prctl(PR_SET_PDEATHSIG, signal) != 0)
        die("becoming another user");
}

int options(int argc, char **argv, void (*list)(void)) {
    int option;
    while ((option = getopt(argc, argv, "t:u:l")) != -1) {
        if (option == 't') {
            bench_seconds = atof(optarg);
        } else if (option == 'u') {
            become((uid_t)atoi(optarg));
        } else if (option == 'l') {
            list();
            exit(0);
        } else {
            return -1;
        }
    }
    return optind;
}

int processors(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        die("sched_getaffinity");
    return CPU_COUNT(&set);
}

void pin(int n) {
    static cpu_set_t all; /* what was allowed before the first pin */
    static int known;
    if (!known && sched_getaffinity(0, sizeof all, &all) != 0)
        die("sched_getaffinity");
    known = 1;
    n %= CPU_COUNT(&all);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &all) || n-- > 0)
            continue;
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        if (sched_setaffinity(0, sizeof one, &one) != 0)
            die("sched_setaffinity");
        return;
    }
}

void *shared_memory(size_t size) {
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        die("mmap");
    return at;
}

pid_t child(void (*fn)(void *), void *arg) {
    fflush(stdout);
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid < 0)
        die("fork");
    if (pid == 0) {
        /* A benchmark that dies must not leave spinning children behind. */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
        fn(arg);
        exit(0);
    }
    return pid;
}

void join(pid_t pid) {
    int status;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            die("waitpid");
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        fprintf(stderr, "bench: a child process failed (status %d)\n", status);
        exit(1);
    }
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double median(double *values, size_t n) {
    qsort(values, n, sizeof *values, by_value);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

double median_ns(batch_fn fn, void *arg) {
    enum { MOST = 4096 };
    static double sample[MOST];
    const double batch_ns = 2e6;
    uint64_t n = 1;
    for (;;) { /* find the size of a batch; this also warms up */
        uint64_t began = now_ns();
        fn(arg, n);
        if ((double)(now_ns() - began) >= batch_ns / 2)
            break;
        n *= 2;
    }
    size_t count = 0;
    uint64_t end = now_ns() + (uint64_t)(bench_seconds * 1e9);
    while (count < 3 || (count < MOST && now_ns() < end)) {
        uint64_t began = now_ns();
        fn(arg, n);
        sample[count++] = (double)(now_ns() - began) / (double)n;
    }
    return median(sample, count);
}

void report(double value, const char *unit) { printf("%.4g %s\n", value, unit); }

/* Nanoseconds of two readings of the clock, one after the other. */
static double clock_ns(void) {
    enum { READINGS = 64 };
    uint64_t began = now_ns(), last = began;
    for (int i = 0; i < READINGS; i++)
        last = now_ns();
    return (double)(last - began) / READINGS;
}

static void print_percentile(const double *sorted, size_t count, size_t per_thousand) {
    size_t above = count * (1000 - per_thousand) / 1000; /* so many took longer */
    if (above < 1)
        printf(" -");
    else
        printf(" %.4g", sorted[count - 1 - above]);
}

void print_percentiles(double *sample, size_t count) {
    qsort(sample, count, sizeof *sample, by_value);
    print_percentile(sample, count, 500);
    print_percentile(sample, count, 990);
    print_percentile(sample, count, 999);
}

void print_tail(batch_fn fn, void *arg) {
    enum { MOST = 1 << 17 };
    static double sample[MOST];
    size_t count = 0;
    uint64_t before = now_ns(), end = before + (uint64_t)(bench_seconds * 1e9 / 4);
    while (count < MOST && before < end) {
        fn(arg, 1);
        uint64_t after = now_ns();
        sample[count++] = (double)(after - before);
        before = after;
    }
    if (count > 0 && clock_ns() * 4 > median(sample, count))
        count = 0;
    print_percentiles(sample, count);
}
