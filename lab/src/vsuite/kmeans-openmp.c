/* Points around centres (k-means), in OpenMP: ten times each point goes to the nearest centre, and
 * each centre to the middle of its points. */
#include "dwarf.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum { DIMENSIONS = 3, CENTRES = 8, TIMES = 10 };
static const double GOLDEN = 0.6180339887498949;

struct middle {
    double sum[DIMENSIONS];
    uint64_t count;
};

static size_t n;
static double *points;
static double centres[CENTRES][DIMENSIONS];

void dwarf_set_up(const char *what, size_t size) {
    (void)what;
    n = size;
    points = own_memory(n * DIMENSIONS * sizeof *points);
    for (size_t i = 0; i < n * DIMENSIONS; i++)
        points[i] = fmod((double)(i + 1) * GOLDEN, 1);
}

static size_t nearest(const double *point) {
    size_t best = 0;
    double least = INFINITY;
    for (size_t i = 0; i < CENTRES; i++) {
        double distance = 0;
        for (size_t d = 0; d < DIMENSIONS; d++)
            distance += (point[d] - centres[i][d]) * (point[d] - centres[i][d]);
        if (distance < least)
            least = distance, best = i;
    }
    return best;
}

static void gather(struct part part, struct middle *found) {
    for (size_t i = part.from; i < part.to; i++) {
        const double *point = points + i * DIMENSIONS;
        struct middle *one = &found[nearest(point)];
        for (size_t d = 0; d < DIMENSIONS; d++)
            one->sum[d] += point[d];
        one->count++;
    }
}

static void move(const struct middle *all) {
    for (size_t i = 0; i < CENTRES; i++)
        for (size_t d = 0; d < DIMENSIONS && all[i].count > 0; d++)
            centres[i][d] = all[i].sum[d] / (double)all[i].count;
}

void dwarf_run(void) {
    memcpy(centres, points, sizeof centres);
    for (int time = 0; time < TIMES; time++) {
        struct middle all[CENTRES] = {0};
#pragma omp parallel
        {
            struct middle found[CENTRES] = {0};
            gather(part_of(n, omp_get_thread_num(), omp_get_num_threads()), found);
#pragma omp critical
            for (size_t i = 0; i < CENTRES; i++) {
                for (size_t d = 0; d < DIMENSIONS; d++)
                    all[i].sum[d] += found[i].sum[d];
                all[i].count += found[i].count;
            }
        }
        move(all);
    }
}

double dwarf_answer(void) { return checksum(&centres[0][0], CENTRES * DIMENSIONS); }

void dwarf_tear_down(void) { free(points); }
