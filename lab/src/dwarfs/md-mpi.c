/* Molecular dynamics in MPI, which the papers lack: all ranks hold all positions, which are
 * gathered to all in each step, and of the other arrays use their own particles'. */
#include "md.h"

#include <mpi.h>
#include <stdlib.h>

static struct md m;
static struct part mine;
static int *counts, *places;

void dwarf_set_up(const char *what, size_t size) {
    m = md_of(what, size);
    mine = part_of(size, team_rank, team_size);
    size_t width = (size_t)m.dimensions, bytes = size * width * sizeof(double);
    m.position = own_memory(bytes);
    m.velocity = own_memory(bytes);
    m.acceleration = own_memory(bytes);
    m.force = own_memory(bytes);
    counts = own_memory((size_t)team_size * sizeof *counts);
    places = own_memory((size_t)team_size * sizeof *places);
    for (int i = 0; i < team_size; i++) {
        struct part p = part_of(size, i, team_size);
        counts[i] = (int)((p.to - p.from) * width);
        places[i] = (int)(p.from * width);
    }
}

static void gather(void) {
    MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, m.position, counts, places, MPI_DOUBLE,
                   MPI_COMM_WORLD);
}

void dwarf_run(void) {
    md_start(&m, mine);
    for (int step = 0; step < m.steps; step++) {
        double part[2] = {0, 0}, sum[2];
        gather();
        md_forces(&m, mine, &part[0], &part[1]);
        MPI_Allreduce(part, sum, 2, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        m.potential = sum[0];
        m.kinetic = sum[1];
        md_move(&m, mine);
    }
    gather();
}

double dwarf_answer(void) { return team_rank == 0 ? md_answer(&m) : 0; }

void dwarf_tear_down(void) {
    void *all[] = {m.position, m.velocity, m.acceleration, m.force, counts, places};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}
