/* Pi by processes that share memory. */
#include "pi.h"

static size_t n;
static double pi;

void dwarf_set_up(const char *what, size_t size) {
    (void)what;
    n = size;
}

void dwarf_run(void) {
    pi = simpson(part_of(n, team_rank, team_size), n);
    team_sum(&pi, 1);
}

double dwarf_answer(void) { return pi; }
void dwarf_tear_down(void) {}
