/* BLAS 1, 2 and 3 by rows, in REAL. Operands are small whole numbers, so that answers are exact. */
#ifndef BLAS_H
#define BLAS_H

#include "dwarf.h"

enum level { DOT, VECTOR, MATRIX };

/* Of n rows; those that a level does not need are null. */
struct blas {
    enum level level;
    size_t n;
    REAL *left;   /* dot: the vector; else the matrix */
    REAL *right;  /* dot and vector: a vector; else a matrix */
    REAL *result; /* nothing, a vector, or a matrix */
    double sum;   /* of dot */
};

enum level blas_level(const char *what);
/* How many values the operands and the result have. */
size_t blas_left(enum level level, size_t n);
size_t blas_right(enum level level, size_t n);
size_t blas_result(enum level level, size_t n);

/* Values `p` of the operands; the first goes to to[0]. */
void fill_left(REAL *to, struct part p);
void fill_right(REAL *to, struct part p);

REAL dot(const REAL *x, const REAL *y, size_t count);
/* Some rows of a matrix by a vector, or by a matrix, of n. */
void rows_by_vector(const REAL *rows, const REAL *x, REAL *y, size_t count, size_t n);
void rows_by_matrix(const REAL *rows, const REAL *b, REAL *c, size_t count, size_t n);

double blas_answer(const struct blas *b);

#endif
