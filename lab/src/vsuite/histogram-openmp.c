/* How often each value of red, green and blue is in a picture, in OpenMP. A large picture is the
 * same one again and again. */
#include "dwarf.h"

#ifndef HELD
#define HELD 100000000
#endif
#include "passes.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum { COLOURS = 3, VALUES = 256, BINS = COLOURS * VALUES };

static size_t pixels, passes;
static unsigned char *picture;
static uint64_t bins[BINS];

void dwarf_set_up(const char *what, size_t size) {
    (void)what;
    pixels = held_of(size);
    passes = pixels ? size / pixels : 0;
    picture = own_memory(COLOURS * pixels);
    for (size_t i = 0; i < COLOURS * pixels; i++)
        picture[i] = (unsigned char)((uint32_t)i * 2654435761U >> 13);
}

static void count(struct part part, uint64_t *found) {
    for (size_t i = part.from; i < part.to; i++)
        for (size_t colour = 0; colour < COLOURS; colour++)
            found[colour * VALUES + picture[i * COLOURS + colour]]++;
}

void dwarf_run(void) {
    memset(bins, 0, sizeof bins);
#pragma omp parallel
    {
        uint64_t found[BINS] = {0};
        for (size_t i = 0; i < passes; i++)
            count(part_of(pixels, omp_get_thread_num(), omp_get_num_threads()), found);
#pragma omp critical
        for (size_t i = 0; i < BINS; i++)
            bins[i] += found[i];
    }
}

double dwarf_answer(void) {
    double values[BINS];
    for (size_t i = 0; i < BINS; i++)
        values[i] = (double)bins[i];
    return checksum(values, BINS);
}

void dwarf_tear_down(void) { free(picture); }
