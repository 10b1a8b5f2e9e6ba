/* Molecular dynamics in OpenMP: as in the papers' program, each half of a step is a parallel
 * region. */
#include "md.h"

#include <omp.h>

static struct md m;

static struct part my_part(void) {
    return part_of(m.n, omp_get_thread_num(), omp_get_num_threads());
}

void dwarf_set_up(const char *what, size_t size) {
    m = md_of(what, size);
    size_t bytes = size * (size_t)m.dimensions * sizeof(double);
    m.position = team_memory(bytes);
    m.velocity = team_memory(bytes);
    m.acceleration = team_memory(bytes);
    m.force = team_memory(bytes);
}

void dwarf_run(void) {
    md_start(&m, (struct part){0, m.n});
    for (int step = 0; step < m.steps; step++) {
        double potential = 0, kinetic = 0;
#pragma omp parallel reduction(+ : potential, kinetic)
        md_forces(&m, my_part(), &potential, &kinetic);
        m.potential = potential;
        m.kinetic = kinetic;
#pragma omp parallel
        md_move(&m, my_part());
    }
}

double dwarf_answer(void) { return md_answer(&m); }

void dwarf_tear_down(void) {
    team_free(m.position);
    team_free(m.velocity);
    team_free(m.acceleration);
    team_free(m.force);
}
