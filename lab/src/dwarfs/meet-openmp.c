/* Barrier and reduction by themselves, `size` of each a run, in OpenMP. */
#include "dwarf.h"

#include <omp.h>
#include <string.h>

static size_t n;
static int reduces;
static double sum[3];

void dwarf_set_up(const char *what, size_t size) {
    n = size;
    reduces = strcmp(what, "reduction") == 0;
}

void dwarf_run(void) {
    sum[0] = 0;
#pragma omp parallel
    for (size_t i = 0; i < n; i++) {
        if (reduces) {
#pragma omp atomic
            sum[i % 3] += 1 + omp_get_thread_num();
#pragma omp master
            sum[(i + 1) % 3] = 0;
        }
#pragma omp barrier
    }
}

double dwarf_answer(void) { return reduces ? sum[(n - 1) % 3] : 0; }
void dwarf_tear_down(void) {}
