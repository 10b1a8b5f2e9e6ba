/* BLAS by rows in shared memory: each process computes its rows of a result that all see. */
#include "blas.h"

static struct blas b;
static struct part mine;

void dwarf_set_up(const char *what, size_t size) {
    b = (struct blas){.level = blas_level(what), .n = size};
    size_t left = blas_left(b.level, size), right = blas_right(b.level, size);
    size_t result = blas_result(b.level, size);
    b.left = team_memory(left * sizeof(REAL));
    b.right = team_memory(right * sizeof(REAL));
    b.result = result ? team_memory(result * sizeof(REAL)) : NULL;
    mine = part_of(size, team_rank, team_size);
    if (team_rank == 0) {
        fill_left(b.left, (struct part){0, left});
        fill_right(b.right, (struct part){0, right});
    }
    team_barrier();
}

void dwarf_run(void) {
    size_t count = mine.to - mine.from, row = mine.from * b.n;
    switch (b.level) {
    case DOT:
        b.sum = dot(b.left + mine.from, b.right + mine.from, count);
        team_sum(&b.sum, 1);
        break;
    case VECTOR:
        rows_by_vector(b.left + row, b.right, b.result + mine.from, count, b.n);
        team_barrier();
        break;
    case MATRIX:
        rows_by_matrix(b.left + row, b.right, b.result + row, count, b.n);
        team_barrier();
        break;
    }
}

double dwarf_answer(void) { return team_rank == 0 ? blas_answer(&b) : 0; }

void dwarf_tear_down(void) {
    team_free(b.left);
    team_free(b.right);
    if (b.result)
        team_free(b.result);
}
