/* GEMV and GER unrolled, as ATLAS generates them, with the parameters that it tunes. The file is
 * compiled as a library that has BLAS's dgemv_ and dger_, and by kernel_tuner, which calls
 * tuned_gemvn(), tuned_gemvt() and tuned_ger(). (It compiles whatever has no extern "C" in it as
 * C++.)
 *
 *   ROWS, COLUMNS  the part of A that is unrolled; so many rows are whole vectors
 *   VW             doubles in a vector: 1, 2, 4 (AVX2) or 8 (AVX-512)
 *
 * Of GEMVN rows are ATLAS's Yunroll and columns its Xunroll, of GEMVT the other way round; of GER
 * they are mu and nu.
 */
#ifndef ROWS
#define ROWS 4
#define COLUMNS 1
#define VW 2
#endif

#if VW == 8
#pragma GCC target("avx512f,prefer-vector-width=512")
#elif VW == 4
#pragma GCC target("avx2")
#endif
#pragma GCC optimize("O3")

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if VW == 1
typedef double vector;
#else
typedef double vector __attribute__((vector_size(VW * 8), aligned(8), may_alias));
#endif
enum { VECTORS = ROWS / VW };

/* The loops over a part of A, whose numbers of turns are known, are unrolled. */
#define UNROLLED _Pragma("GCC unroll 64")
#define PART static inline __attribute__((always_inline)) void

/* y += A x, of some columns. */
PART add(double *y, size_t m, const double *a, size_t ld, const double *x, const size_t columns) {
    size_t i = 0;
    for (; i + ROWS <= m; i += ROWS) {
        vector sum[VECTORS];
        memcpy(sum, y + i, sizeof sum);
        UNROLLED for (size_t j = 0; j < columns; j++) UNROLLED for (size_t v = 0; v < VECTORS; v++)
            sum[v] += ((const vector *)(a + i + j * ld))[v] * x[j];
        memcpy(y + i, sum, sizeof sum);
    }
    for (; i < m; i++)
        for (size_t j = 0; j < columns; j++)
            y[i] += a[i + j * ld] * x[j];
}

/* y += A^T x, of some columns, which are as many elements of y. */
PART dot(double *y, size_t m, const double *a, size_t ld, const double *x, const size_t columns) {
    vector sum[COLUMNS];
    memset(sum, 0, sizeof sum);
    size_t i = 0;
    for (; i + ROWS <= m; i += ROWS)
        UNROLLED for (size_t v = 0; v < VECTORS; v++) UNROLLED for (size_t j = 0; j < columns; j++)
            sum[j] += ((const vector *)(a + i + j * ld))[v] * ((const vector *)(x + i))[v];
    double parts[COLUMNS * VW];
    memcpy(parts, sum, sizeof parts);
    for (size_t j = 0; j < columns; j++) {
        for (size_t part = 0; part < VW; part++)
            y[j] += parts[j * VW + part];
        for (size_t left = i; left < m; left++)
            y[j] += a[left + j * ld] * x[left];
    }
}

/* A += x y^T, of some columns. */
PART rank_one(double *a, size_t m, size_t ld, const double *x, const double *y,
              const size_t columns) {
    size_t i = 0;
    for (; i + ROWS <= m; i += ROWS)
        UNROLLED for (size_t j = 0; j < columns; j++)
            UNROLLED for (size_t v = 0; v < VECTORS; v++)((vector *)(a + i + j * ld))[v] +=
            ((const vector *)(x + i))[v] * y[j];
    for (; i < m; i++)
        for (size_t j = 0; j < columns; j++)
            a[i + j * ld] += x[i] * y[j];
}

/* Where a vector begins: one whose elements go backwards begins with its last. */
static ptrdiff_t first(int n, int between) {
    return between < 0 ? (ptrdiff_t)(1 - n) * between : 0;
}

/* A vector without gaps, times a number. */
static double *gathered(const double *x, int n, int between, double times) {
    double *found = (double *)malloc((size_t)n * sizeof *found + 1);
    if (found == NULL)
        abort();
    for (int i = 0; i < n; i++)
        found[i] = times * x[first(n, between) + (ptrdiff_t)i * between];
    return found;
}

/* As BLAS has them. */
void dgemv_(const char *transposed, const int *m, const int *n, const double *alpha,
            const double *a, const int *lda, const double *x, const int *incx, const double *beta,
            double *y, const int *incy) {
    const int turned = *transposed != 'N', of_x = turned ? *m : *n, of_y = turned ? *n : *m;
    const size_t rows = (size_t)*m, columns = (size_t)*n, ld = (size_t)*lda;
    double *from = gathered(x, of_x, *incx, *alpha);
    double *sum = (double *)calloc((size_t)of_y + 1, sizeof *sum);
    if (sum == NULL)
        abort();
    size_t j = 0;
    for (; j + COLUMNS <= columns; j += COLUMNS)
        if (turned)
            dot(sum + j, rows, a + j * ld, ld, from, COLUMNS);
        else
            add(sum, rows, a + j * ld, ld, from + j, COLUMNS);
    for (; j < columns; j++)
        if (turned)
            dot(sum + j, rows, a + j * ld, ld, from, 1);
        else
            add(sum, rows, a + j * ld, ld, from + j, 1);
    for (int i = 0; i < of_y; i++) {
        double *to = &y[first(of_y, *incy) + (ptrdiff_t)i * *incy];
        *to = sum[i] + (*beta == 0 ? 0 : *beta * *to);
    }
    free(from);
    free(sum);
}

void dger_(const int *m, const int *n, const double *alpha, const double *x, const int *incx,
           const double *y, const int *incy, double *a, const int *lda) {
    const size_t rows = (size_t)*m, columns = (size_t)*n, ld = (size_t)*lda;
    double *of_x = gathered(x, *m, *incx, *alpha), *of_y = gathered(y, *n, *incy, 1);
    size_t j = 0;
    for (; j + COLUMNS <= columns; j += COLUMNS)
        rank_one(a + j * ld, rows, ld, of_x, of_y + j, COLUMNS);
    for (; j < columns; j++)
        rank_one(a + j * ld, rows, ld, of_x, of_y + j, 1);
    free(of_x);
    free(of_y);
}

/* For the tuner: milliseconds of a call. */
static float since(const struct timespec *from) {
    struct timespec to;
    clock_gettime(CLOCK_MONOTONIC, &to);
    return (float)((double)(to.tv_sec - from->tv_sec) * 1e3 +
                   (double)(to.tv_nsec - from->tv_nsec) / 1e6);
}

static float gemv(const char *transposed, double *y, const double *a, const double *x, int n) {
    const double one = 1, zero = 0;
    const int next = 1;
    struct timespec from;
    clock_gettime(CLOCK_MONOTONIC, &from);
    dgemv_(transposed, &n, &n, &one, a, &n, x, &next, &zero, y, &next);
    return since(&from);
}

float tuned_gemvn(double *y, const double *a, const double *x, int n) {
    return gemv("N", y, a, x, n);
}

float tuned_gemvt(double *y, const double *a, const double *x, int n) {
    return gemv("T", y, a, x, n);
}

/* sum = x y^T + A: a call that is repeated gives the same. */
float tuned_ger(double *sum, const double *a, const double *x, const double *y, int n) {
    const double one = 1;
    const int next = 1;
    struct timespec from;
    memcpy(sum, a, (size_t)n * (size_t)n * sizeof *a);
    clock_gettime(CLOCK_MONOTONIC, &from);
    dger_(&n, &n, &one, x, &next, y, &next, sum, &n);
    return since(&from);
}
