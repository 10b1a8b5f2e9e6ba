/* dgemm [-s] [-e BYTES] [-t XY] [-p PROCESSES -k KEY] LIBRARY N: one C = A B of N rows, by a
 * library's dgemm_.
 *
 * As in paper 000 a process does one, and its operands are there before: random numbers are in
 * them.
 *
 *   -s  the operands are in a System V segment
 *   -e  the library's cache_edge; it is printed in the place of N
 *   -t  which operands are transposed: NN, NT, TN, TT
 *   -p  so many of these processes begin together; they meet by KEY
 *
 * Prints "WHAT N VALUE" lines: rate in Mflop/s; resident and swapped bytes at the end; minor and
 * major faults, and data and instruction TLB misses, of the multiplication, where there are
 * counters. Before them "kernel NAME", where a library says for which processor it has chosen its
 * kernel. A product that is wrong is an error. */
#define _GNU_SOURCE
#include "../dwarfs/dwarf.h"
#include "library.h"

#include <linux/perf_event.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef void dgemm(const char *, const char *, const int *, const int *, const int *,
                   const double *, const double *, const int *, const double *, const int *,
                   const double *, double *, const int *);

/* Freivalds' check: C x is A (B x) of a random x. An element that is wrong changes one side only.
 */
static void check(const double *a, const double *b, const double *c, size_t n,
                  const char *transposed) {
    double *of_c = calloc(4 * n, sizeof(double)), *of_b = of_c + n, *of_ab = of_b + n,
           *x = of_ab + n;
    if (of_c == NULL)
        die("calloc");
    for (size_t i = 0; i < n; i++)
        x[i] = some() < 0 ? some() - 1 : some() + 1;
    by_vector(of_b, b, x, n, transposed[1] == 'T');
    by_vector(of_ab, a, of_b, n, transposed[0] == 'T');
    by_vector(of_c, c, x, n, 0);
    for (size_t i = 0; i < n; i++)
        if (!(fabs(of_c[i] - of_ab[i]) <= 1e-12 * (double)(n + 10) * sqrt((double)n))) {
            fprintf(stderr, "dgemm: the product of %zu rows is wrong: row %zu is off by %g\n", n, i,
                    fabs(of_c[i] - of_ab[i]));
            exit(1);
        }
    free(of_c);
}

/* A counter of this process's TLB misses; negative if the processor has none for us. */
static int counter(unsigned cache) {
    struct perf_event_attr event = {
        .type = PERF_TYPE_HW_CACHE,
        .size = sizeof event,
        .config = cache | PERF_COUNT_HW_CACHE_OP_READ << 8 | PERF_COUNT_HW_CACHE_RESULT_MISS << 16,
        .exclude_hv = 1,
    };
    return (int)syscall(SYS_perf_event_open, &event, 0, -1, -1, 0);
}

static uint64_t counted(int counter) {
    uint64_t value = 0;
    if (counter >= 0 && read(counter, &value, sizeof value) != sizeof value)
        die("perf event");
    return value;
}

/* A line of /proc/self/status, which is in KiB. */
static double bytes_of(const char *name) {
    char line[256];
    double found = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (status != NULL && fgets(line, sizeof line, status))
        if (strncmp(line, name, strlen(name)) == 0)
            found = strtod(line + strlen(name), NULL) * 1024;
    if (status != NULL)
        fclose(status);
    return found;
}

/* OpenBLAS says for which processor its kernel is. */
static void tell_kernel(const char *library) {
    char *(*name)(void) = (char *(*)(void))symbol_or_none(library, "openblas_get_corename");
    if (name != NULL)
        printf("kernel %s\n", name());
}

static void measure(dgemm *multiply, int n, const char *size, int in_segment,
                    const char *transposed) {
    const size_t side = (size_t)n, count = side * side;
    double *a = operands(3 * count, in_segment), *b = a + count, *c = b + count;
    const double one = 1, zero = 0;
    const int data = counter(PERF_COUNT_HW_CACHE_DTLB), code = counter(PERF_COUNT_HW_CACHE_ITLB);
    struct rusage before, after;
    be_inexact();
    if (team_size > 1)
        team_barrier();
    getrusage(RUSAGE_SELF, &before);
    const uint64_t of_data = counted(data), of_code = counted(code);
    const double began = seconds();
    multiply(transposed, transposed + 1, &n, &n, &n, &one, a, &n, b, &n, &zero, c, &n);
    const double took = seconds() - began;
    getrusage(RUSAGE_SELF, &after);
    printf("rate %s %.6g\n", size, 2e-6 * (double)count * (double)n / took);
    printf("resident %s %.0f\n", size, bytes_of("VmRSS:"));
    printf("swapped %s %.0f\n", size, bytes_of("VmSwap:"));
    printf("minor %s %ld\n", size, after.ru_minflt - before.ru_minflt);
    printf("major %s %ld\n", size, after.ru_majflt - before.ru_majflt);
    if (data >= 0)
        printf("data-tlb %s %llu\n", size, (unsigned long long)(counted(data) - of_data));
    if (code >= 0)
        printf("code-tlb %s %llu\n", size, (unsigned long long)(counted(code) - of_code));
    fflush(stdout);
    check(a, b, c, side, transposed);
}

int main(int argc, char **argv) {
    const char *edge = NULL, *transposed = "NN";
    int option, in_segment = 0, processes = 1;
    unsigned key = 0x44580000;
    while ((option = getopt(argc, argv, "+se:t:p:k:")) != -1) {
        if (option == 's')
            in_segment = 1;
        else if (option == 'e')
            edge = optarg;
        else if (option == 't')
            transposed = optarg;
        else if (option == 'p')
            processes = atoi(optarg);
        else if (option == 'k')
            key = (unsigned)strtoul(optarg, NULL, 0);
        else
            return 2;
    }
    const int n = argc - optind == 2 ? atoi(argv[optind + 1]) : 0;
    if (n < 1 || processes < 1 || strlen(transposed) != 2) {
        fprintf(stderr, "dgemm: a library and a number of rows are needed\n");
        return 2;
    }
    dgemm *multiply = (dgemm *)symbol(argv[optind], "dgemm_");
    if (edge != NULL)
        *(size_t *)symbol(argv[optind], "cache_edge") = strtoul(edge, NULL, 10);
    tell_kernel(argv[optind]);
    if (processes > 1)
        team_join(&argc, &argv, key, processes);
    measure(multiply, n, edge ? edge : argv[optind + 1], in_segment, transposed);
    if (processes > 1)
        team_leave();
    return 0;
}
