/* BLAS by rows in OpenMP. */
#include "blas.h"

#include <omp.h>

static struct blas b;

void dwarf_set_up(const char *what, size_t size) {
    b = (struct blas){.level = blas_level(what), .n = size};
    size_t left = blas_left(b.level, size), right = blas_right(b.level, size);
    b.left = team_memory(left * sizeof(REAL));
    b.right = team_memory(right * sizeof(REAL));
    b.result = team_memory(blas_result(b.level, size) * sizeof(REAL));
    fill_left(b.left, (struct part){0, left});
    fill_right(b.right, (struct part){0, right});
}

static struct part my_part(void) {
    return part_of(b.n, omp_get_thread_num(), omp_get_num_threads());
}

static void run_dot(void) {
    double sum = 0;
#pragma omp parallel reduction(+ : sum)
    {
        struct part p = my_part();
        sum += dot(b.left + p.from, b.right + p.from, p.to - p.from);
    }
    b.sum = sum;
}

static void run_vector(void) {
#pragma omp parallel
    {
        struct part p = my_part();
        rows_by_vector(b.left + p.from * b.n, b.right, b.result + p.from, p.to - p.from, b.n);
    }
}

static void run_matrix(void) {
#pragma omp parallel
    {
        struct part p = my_part();
        size_t at = p.from * b.n;
        rows_by_matrix(b.left + at, b.right, b.result + at, p.to - p.from, b.n);
    }
}

void dwarf_run(void) {
    static void (*const run[])(void) = {run_dot, run_vector, run_matrix};
    run[b.level]();
}

double dwarf_answer(void) { return blas_answer(&b); }

void dwarf_tear_down(void) {
    team_free(b.left);
    team_free(b.right);
    team_free(b.result);
}
