/* The sums of a linear regression, in OpenMP. Many points are the same ones again and again. */
#include "dwarf.h"

#ifndef HELD
#define HELD 50000000
#endif
#include "passes.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum { X, Y, XX, XY, TOTALS };

struct point {
    int32_t x, y;
};

static size_t n, passes;
static struct point *points;
static int64_t totals[TOTALS];

void dwarf_set_up(const char *what, size_t size) {
    (void)what;
    n = held_of(size);
    passes = n ? size / n : 0;
    points = own_memory(n * sizeof *points);
    for (size_t i = 0; i < n; i++) {
        points[i].x = (int32_t)(i % 1000);
        points[i].y = 3 * points[i].x + 7 + (int32_t)(i % 5) - 2;
    }
}

static void sum(struct part part, int64_t *found) {
    for (size_t i = part.from; i < part.to; i++) {
        int64_t x = points[i].x, y = points[i].y;
        found[X] += x, found[Y] += y;
        found[XX] += x * x, found[XY] += x * y;
    }
}

void dwarf_run(void) {
    memset(totals, 0, sizeof totals);
#pragma omp parallel
    {
        int64_t found[TOTALS] = {0};
        for (size_t i = 0; i < passes; i++)
            sum(part_of(n, omp_get_thread_num(), omp_get_num_threads()), found);
#pragma omp critical
        for (size_t i = 0; i < TOTALS; i++)
            totals[i] += found[i];
    }
}

/* The slope, and where the line meets the axis. */
double dwarf_answer(void) {
    double count = (double)(n * passes), x = (double)totals[X], y = (double)totals[Y];
    double below = count * (double)totals[XX] - x * x;
    double slope = below != 0 ? (count * (double)totals[XY] - x * y) / below : 0;
    double line[] = {slope, (y - slope * x) / count};
    return checksum(line, sizeof line / sizeof *line);
}

void dwarf_tear_down(void) { free(points); }
