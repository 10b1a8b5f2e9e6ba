/* Barrier and reduction by themselves, `size` of each a run, of processes that share memory. */
#include "dwarf.h"

#include <string.h>

static size_t n;
static int reduces;
static double sum;

void dwarf_set_up(const char *what, size_t size) {
    n = size;
    reduces = strcmp(what, "reduction") == 0;
    sum = 0;
}

void dwarf_run(void) {
    for (size_t i = 0; i < n; i++) {
        if (reduces) {
            sum = 1 + team_rank;
            team_sum(&sum, 1);
        } else {
            team_barrier();
        }
    }
}

double dwarf_answer(void) { return sum; }
void dwarf_tear_down(void) {}
