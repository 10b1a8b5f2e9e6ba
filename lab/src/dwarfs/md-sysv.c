/* Molecular dynamics by processes that share all arrays. */
#include "md.h"

static struct md m;
static struct part mine;

void dwarf_set_up(const char *what, size_t size) {
    m = md_of(what, size);
    mine = part_of(size, team_rank, team_size);
    size_t bytes = size * (size_t)m.dimensions * sizeof(double);
    m.position = team_memory(bytes);
    m.velocity = team_memory(bytes);
    m.acceleration = team_memory(bytes);
    m.force = team_memory(bytes);
}

void dwarf_run(void) {
    md_start(&m, mine);
    for (int step = 0; step < m.steps; step++) {
        double energy[2] = {0, 0};
        team_barrier(); /* all positions are known */
        md_forces(&m, mine, &energy[0], &energy[1]);
        team_sum(energy, 2);
        m.potential = energy[0];
        m.kinetic = energy[1];
        md_move(&m, mine);
    }
    team_barrier();
}

double dwarf_answer(void) { return team_rank == 0 ? md_answer(&m) : 0; }

void dwarf_tear_down(void) {
    team_free(m.position);
    team_free(m.velocity);
    team_free(m.acceleration);
    team_free(m.force);
}
