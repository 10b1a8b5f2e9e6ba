/* Pi by Simpson's rule: the integral of 4 / (1 + x * x) from 0 to 1. */
#ifndef PI_H
#define PI_H

#include "dwarf.h"

/* The share of some of n intervals. */
double simpson(struct part intervals, size_t n);

#endif
