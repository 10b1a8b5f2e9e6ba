/* What the programs that call a routine of a library's BLAS share. */
#ifndef LIBRARY_H
#define LIBRARY_H

#include <stddef.h>

/* A symbol of a library; the program ends, and says why, where there is none. */
void *symbol(const char *library, const char *name);

/* The same; a null pointer where there is none. */
void *symbol_or_none(const char *library, const char *name);

double seconds(void);

/* From -0.5 to 0.5, the same numbers for everybody. */
double some(void);

/* Memory with such numbers, in a System V segment or else of malloc's. */
double *operands(size_t count, int in_segment);

/* Has an emulator compute by the host's processor. It does so once a result was inexact, and else
 * slowly. */
void be_inexact(void);

/* y = op(M) x, of a square matrix whose columns follow each other. */
void by_vector(double *y, const double *m, const double *x, size_t n, int transposed);

#endif
