/* The arithmetic of pi: see pi.h. */
#include "pi.h"

static double f(double x) { return 4 / (1 + x * x); }

double simpson(struct part intervals, size_t n) {
    double h = 1 / (double)n, sum = 0;
    for (size_t i = intervals.from; i < intervals.to; i++) {
        double x = h * (double)i;
        sum += f(x) + 4 * f(x + h / 2) + f(x + h);
    }
    return sum * h / 6;
}
