/* Laplace's equation by Jacobi: ITERATIONS over a square mesh of n * n points, whose first row is
 * held at 1 and whose other edges at 0. The change of each iteration is reduced, as a test of
 * convergence needs it. */
#ifndef LAPLACE_H
#define LAPLACE_H

#include "dwarf.h"

enum { ITERATIONS = 1000 };

/* The inner rows that are one's share, by their numbers in the mesh. */
struct part inner_rows(size_t n, int number, int of);

/* Sets rows, the first of which is row `p.from` of the mesh, to what they are at the beginning. */
void start_rows(double *rows, size_t n, struct part p);

/* A step of `count` rows: each needs the row before it and the one after it. The sum of squares of
 * changes. */
double jacobi(const double *old, double *next, size_t n, size_t count);

/* Of a mesh and its last change. */
double laplace_answer(const double *mesh, size_t n, double change);

#endif
