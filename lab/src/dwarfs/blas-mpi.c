/* BLAS by rows in MPI: each rank holds its rows of the left operand, gets the right one from the
 * first rank, which gathers the result. Of a dot product it holds its share of both. */
#include "blas.h"

#include <mpi.h>
#include <stdlib.h>

static const size_t WIDTH = sizeof(REAL);
static struct blas b;
static struct part mine;
static REAL *rows; /* of the result, this rank's */
static int *counts, *places;
static MPI_Datatype type;

static void share_out(size_t width) {
    counts = own_memory((size_t)team_size * sizeof *counts);
    places = own_memory((size_t)team_size * sizeof *places);
    for (int i = 0; i < team_size; i++) {
        struct part p = part_of(b.n, i, team_size);
        counts[i] = (int)((p.to - p.from) * width);
        places[i] = (int)(p.from * width);
    }
}

void dwarf_set_up(const char *what, size_t size) {
    b = (struct blas){.level = blas_level(what), .n = size};
    type = WIDTH == sizeof(float) ? MPI_FLOAT : MPI_DOUBLE;
    mine = part_of(size, team_rank, team_size);
    size_t row = b.level == DOT ? 1 : size, width = b.level == MATRIX ? size : 1;
    struct part left = {mine.from * row, mine.to * row};
    struct part right = b.level == DOT ? mine : (struct part){0, blas_right(b.level, size)};
    b.left = own_memory((left.to - left.from) * WIDTH);
    b.right = own_memory((right.to - right.from) * WIDTH);
    rows = own_memory((mine.to - mine.from) * width * WIDTH);
    b.result = own_memory(team_rank == 0 ? blas_result(b.level, size) * WIDTH : 0);
    share_out(width);
    fill_left(b.left, left);
    if (team_rank == 0 || b.level == DOT)
        fill_right(b.right, right);
}

static void gather(void) {
    MPI_Gatherv(rows, counts[team_rank], type, b.result, counts, places, type, 0, MPI_COMM_WORLD);
}

void dwarf_run(void) {
    size_t count = mine.to - mine.from;
    double part;
    switch (b.level) {
    case DOT:
        part = dot(b.left, b.right, count);
        MPI_Allreduce(&part, &b.sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        break;
    case VECTOR:
        MPI_Bcast(b.right, (int)b.n, type, 0, MPI_COMM_WORLD);
        rows_by_vector(b.left, b.right, rows, count, b.n);
        gather();
        break;
    case MATRIX:
        MPI_Bcast(b.right, (int)(b.n * b.n), type, 0, MPI_COMM_WORLD);
        rows_by_matrix(b.left, b.right, rows, count, b.n);
        gather();
        break;
    }
}

double dwarf_answer(void) { return team_rank == 0 ? blas_answer(&b) : 0; }

void dwarf_tear_down(void) {
    void *all[] = {b.left, b.right, b.result, rows, counts, places};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}
