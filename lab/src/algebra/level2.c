/* level2 ROUTINE LIBRARY N: a matrix of N rows and a vector, by a library's dgemv_ or dger_.
 *
 *   gemvn  y = A x
 *   gemvt  y = A^T x
 *   ger    A = x y^T + A
 *
 * As of dgemm, the operands are there before. A call takes less than a millisecond mostly, so a
 * process makes CALLS of them, after one that has brought in what is touched first.
 *
 * Prints "rate N VALUE", in Mflop/s. A result that is wrong is an error. */
#include "library.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CALLS = 20 };
typedef void dgemv(const char *, const int *, const int *, const double *, const double *,
                   const int *, const double *, const int *, const double *, double *, const int *);
typedef void dger(const int *, const int *, const double *, const double *, const int *,
                  const double *, const int *, double *, const int *);

static void compare(const char *routine, size_t n, const double *found, const double *wanted,
                    size_t count) {
    for (size_t i = 0; i < count; i++)
        if (!(fabs(found[i] - wanted[i]) <= 1e-13 * (double)(n + CALLS))) {
            fprintf(stderr, "level2: %s of %zu rows is wrong: element %zu is off by %g\n", routine,
                    n, i, fabs(found[i] - wanted[i]));
            exit(1);
        }
}

/* The seconds of a call of A or its transpose with x. */
static double by_gemv(dgemv *multiply, const char *transposed, int n, const double *a) {
    const size_t side = (size_t)n;
    double *x = operands(3 * side, 0), *y = x + side, *wanted = y + side;
    const double one = 1, zero = 0;
    const int next = 1;
    double began = 0;
    for (int call = 0; call <= CALLS; call++) {
        if (call == 1)
            began = seconds();
        multiply(transposed, &n, &n, &one, a, &n, x, &next, &zero, y, &next);
    }
    const double took = seconds() - began;
    by_vector(wanted, a, x, side, *transposed == 'T');
    compare("gemv", side, y, wanted, side);
    free(x);
    return took / CALLS;
}

/* The seconds of a call that adds x y^T to A. */
static double by_ger(dger *add, int n, double *a) {
    const size_t side = (size_t)n, bytes = side * side * sizeof *a;
    double *x = operands(2 * side, 0), *y = x + side, *wanted = malloc(bytes);
    if (wanted == NULL)
        abort();
    memcpy(wanted, a, bytes);
    const double one = 1;
    const int next = 1;
    double began = 0;
    for (int call = 0; call <= CALLS; call++) {
        if (call == 1)
            began = seconds();
        add(&n, &n, &one, x, &next, y, &next, a, &n);
    }
    const double took = seconds() - began;
    for (size_t j = 0; j < side; j++)
        for (size_t i = 0; i < side; i++)
            wanted[i + j * side] += (CALLS + 1) * x[i] * y[j];
    compare("ger", side, a, wanted, side * side);
    free(x);
    free(wanted);
    return took / CALLS;
}

int main(int argc, char **argv) {
    const int n = argc == 4 ? atoi(argv[3]) : 0;
    if (n < 1) {
        fprintf(stderr, "level2: a routine, a library and a number of rows are needed\n");
        return 2;
    }
    const char *routine = argv[1], *library = argv[2];
    const size_t side = (size_t)n;
    double *a = operands(side * side, 0), took;
    be_inexact();
    if (strcmp(routine, "gemvn") == 0)
        took = by_gemv((dgemv *)symbol(library, "dgemv_"), "N", n, a);
    else if (strcmp(routine, "gemvt") == 0)
        took = by_gemv((dgemv *)symbol(library, "dgemv_"), "T", n, a);
    else if (strcmp(routine, "ger") == 0)
        took = by_ger((dger *)symbol(library, "dger_"), n, a);
    else {
        fprintf(stderr, "level2: there is no routine %s\n", routine);
        return 2;
    }
    printf("rate %d %.6g\n", n, 2e-6 * (double)side * (double)side / took);
    free(a);
    return 0;
}
