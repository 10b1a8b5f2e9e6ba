/* The arithmetic of BLAS: see blas.h. */
#include "blas.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum level blas_level(const char *what) {
    static const char *const names[] = {"dot", "vector", "matrix"};
    for (int i = DOT; i <= MATRIX; i++)
        if (strcmp(what, names[i]) == 0)
            return (enum level)i;
    errno = EINVAL;
    die(what);
}

size_t blas_left(enum level level, size_t n) { return level == DOT ? n : n * n; }
size_t blas_right(enum level level, size_t n) { return level == MATRIX ? n * n : n; }

size_t blas_result(enum level level, size_t n) {
    return level == DOT ? 0 : level == VECTOR ? n : n * n;
}

void fill_left(REAL *to, struct part p) {
    for (size_t i = p.from; i < p.to; i++)
        to[i - p.from] = (REAL)(i % 7) - 3;
}

void fill_right(REAL *to, struct part p) {
    for (size_t i = p.from; i < p.to; i++)
        to[i - p.from] = (REAL)(i % 5) - 2;
}

REAL dot(const REAL *x, const REAL *y, size_t count) {
    REAL sum[4] = {0, 0, 0, 0};
    size_t i = 0;
    for (; i + 4 <= count; i += 4)
        for (size_t j = 0; j < 4; j++)
            sum[j] += x[i + j] * y[i + j];
    for (; i < count; i++)
        sum[0] += x[i] * y[i];
    return sum[0] + sum[1] + sum[2] + sum[3];
}

void rows_by_vector(const REAL *rows, const REAL *x, REAL *y, size_t count, size_t n) {
    for (size_t i = 0; i < count; i++)
        y[i] = dot(rows + i * n, x, n);
}

void rows_by_matrix(const REAL *rows, const REAL *b, REAL *restrict c, size_t count, size_t n) {
    memset(c, 0, count * n * sizeof *c);
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < n; k++)
            for (size_t j = 0; j < n; j++)
                c[i * n + j] += rows[i * n + k] * b[k * n + j];
}

double blas_answer(const struct blas *b) {
    if (b->level == DOT)
        return b->sum;
    size_t count = blas_result(b->level, b->n);
    double *values = own_memory(count * sizeof *values);
    for (size_t i = 0; i < count; i++)
        values[i] = b->result[i];
    double answer = checksum(values, count);
    free(values);
    return answer;
}
