/* Laplace in MPI: each rank holds its rows and a copy of the row before and the one after them,
 * which neighbours exchange in each iteration. The first rank gathers the mesh. */
#include "laplace.h"

#include <mpi.h>
#include <stdlib.h>

static size_t n;
static double *rows[2], *mesh, change;
static struct part mine;
static int *counts, *places, above, below;

void dwarf_set_up(const char *what, size_t size) {
    (void)what;
    n = size;
    mine = inner_rows(n, team_rank, team_size);
    struct part held = {mine.from - 1, mine.to + 1};
    for (int i = 0; i < 2; i++) {
        rows[i] = own_memory((held.to - held.from) * n * sizeof(double));
        start_rows(rows[i], n, held);
    }
    mesh = own_memory(team_rank == 0 ? n * n * sizeof(double) : 0);
    if (team_rank == 0)
        start_rows(mesh, n, (struct part){0, n});
    counts = own_memory((size_t)team_size * sizeof *counts);
    places = own_memory((size_t)team_size * sizeof *places);
    above = below = MPI_PROC_NULL;
    for (int i = 0; i < team_size; i++) {
        struct part p = inner_rows(n, i, team_size);
        counts[i] = (int)((p.to - p.from) * n);
        places[i] = (int)(p.from * n);
        /* A rank without rows has no neighbours. */
        if (p.from == p.to || mine.from == mine.to)
            continue;
        above = i == team_rank - 1 ? i : above;
        below = i == team_rank + 1 ? i : below;
    }
}

static void exchange(double *held, size_t count) {
    double *first = held + n, *last = held + count * n, *after = last + n;
    MPI_Sendrecv(first, (int)n, MPI_DOUBLE, above, 0, after, (int)n, MPI_DOUBLE, below, 0,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Sendrecv(last, (int)n, MPI_DOUBLE, below, 1, held, (int)n, MPI_DOUBLE, above, 1,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

void dwarf_run(void) {
    size_t count = mine.to - mine.from;
    start_rows(rows[0], n, (struct part){mine.from - 1, mine.to + 1});
    for (int k = 0; k < ITERATIONS; k++) {
        double *next = rows[!(k % 2)];
        double part = jacobi(rows[k % 2] + n, next + n, n, count);
        exchange(next, count);
        MPI_Allreduce(&part, &change, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    }
    MPI_Gatherv(rows[ITERATIONS % 2] + n, counts[team_rank], MPI_DOUBLE, mesh, counts, places,
                MPI_DOUBLE, 0, MPI_COMM_WORLD);
}

double dwarf_answer(void) { return team_rank == 0 ? laplace_answer(mesh, n, change) : 0; }

void dwarf_tear_down(void) {
    void *all[] = {rows[0], rows[1], mesh, counts, places};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}
