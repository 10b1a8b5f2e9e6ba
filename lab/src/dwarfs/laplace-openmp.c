/* Laplace in OpenMP. "laplace" reduces an iteration's change by OpenMP's own reduction, as the
 * papers' program, in a parallel region for each iteration; "laplace-atomic" adds to it by hand, in
 * one region for all iterations. */
#include "laplace.h"

#include <omp.h>
#include <string.h>

static size_t n;
static double *mesh[2], change;
static int atomically;

void dwarf_set_up(const char *what, size_t size) {
    atomically = strcmp(what, "laplace-atomic") == 0;
    n = size;
    for (int i = 0; i < 2; i++) {
        mesh[i] = team_memory(n * n * sizeof(double));
        start_rows(mesh[i], n, (struct part){0, n});
    }
}

static struct part my_rows(void) {
    return inner_rows(n, omp_get_thread_num(), omp_get_num_threads());
}

static double my_step(struct part p, int k) {
    return jacobi(mesh[k % 2] + p.from * n, mesh[!(k % 2)] + p.from * n, n, p.to - p.from);
}

static void reducing_run(void) {
#pragma omp parallel
    {
        struct part p = my_rows();
        start_rows(mesh[0] + p.from * n, n, p);
    }
    for (int k = 0; k < ITERATIONS; k++) {
        double sum = 0;
#pragma omp parallel reduction(+ : sum)
        sum += my_step(my_rows(), k);
        change = sum;
    }
}

static void atomic_run(void) {
    /* One is added to, the next is cleared, the one before may still be read. */
    double sum[3] = {0, 0, 0};
#pragma omp parallel shared(sum)
    {
        struct part p = my_rows();
        start_rows(mesh[0] + p.from * n, n, p);
#pragma omp barrier
        for (int k = 0; k < ITERATIONS; k++) {
            double part = my_step(p, k);
#pragma omp atomic
            sum[k % 3] += part;
#pragma omp master
            sum[(k + 1) % 3] = 0;
#pragma omp barrier
        }
    }
    change = sum[(ITERATIONS - 1) % 3];
}

void dwarf_run(void) {
    if (atomically)
        atomic_run();
    else
        reducing_run();
}

double dwarf_answer(void) { return laplace_answer(mesh[ITERATIONS % 2], n, change); }

void dwarf_tear_down(void) {
    team_free(mesh[0]);
    team_free(mesh[1]);
}
