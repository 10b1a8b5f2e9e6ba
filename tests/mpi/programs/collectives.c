/* Collectives, each result checked by what it must be. */
#include "job.h"

static const int lengths[] = {1, 100, 5000, 200000};
#define EACH(length)                                                                               \
    for (size_t at = 0, length; at < sizeof lengths / sizeof *lengths && (length = lengths[at]);   \
         at++)

static long *numbers(size_t count) {
    long *all = calloc(count, sizeof *all);
    CHECK(all, "no memory");
    return all;
}

static long sum_of_ranks(void) { return (long)size * (size - 1) / 2; }

static void to_and_from_one(MPI_Comm comm) {
    EACH(length) {
        int n = (int)length;
        long *mine = numbers(length), *all = numbers(length * size);
        for (int root = 0; root < size; root++) {
            for (int i = 0; i < n; i++)
                mine[i] = rank == root ? root + i : -1;
            MPI_Bcast(mine, n, MPI_LONG, root, comm);
            for (int i = 0; i < n; i++)
                CHECK(mine[i] == root + i, "bcast");
            for (int i = 0; i < n; i++)
                mine[i] = rank + i;
            MPI_Gather(mine, n, MPI_LONG, all, n, MPI_LONG, root, comm);
            for (int i = 0; rank == root && i < n * size; i++)
                CHECK(all[i] == i / n + i % n, "gather");
            memset(mine, 0, length * sizeof *mine);
            MPI_Scatter(all, n, MPI_LONG, mine, n, MPI_LONG, root, comm);
            for (int i = 0; i < n; i++)
                CHECK(mine[i] == rank + i, "scatter");
            MPI_Reduce(mine, all, n, MPI_LONG, MPI_SUM, root, comm);
            for (int i = 0; rank == root && i < n; i++)
                CHECK(all[i] == sum_of_ranks() + (long)size * i, "reduce");
        }
        free(mine);
        free(all);
    }
}

static void to_all(MPI_Comm comm) {
    EACH(length) {
        int n = (int)length;
        long *mine = numbers(length * size), *all = numbers(length * size);
        for (int i = 0; i < n; i++)
            mine[i] = rank + i;
        MPI_Allreduce(mine, all, n, MPI_LONG, MPI_SUM, comm);
        for (int i = 0; i < n; i++)
            CHECK(all[i] == sum_of_ranks() + (long)size * i, "allreduce");
        MPI_Allreduce(MPI_IN_PLACE, all, n, MPI_LONG, MPI_MAX, comm);
        MPI_Allgather(mine, n, MPI_LONG, all, n, MPI_LONG, comm);
        for (int i = 0; i < n * size; i++)
            CHECK(all[i] == i / n + i % n, "allgather");
        for (int i = 0; i < n * size; i++)
            mine[i] = rank * 1000L + i / n;
        MPI_Alltoall(mine, n, MPI_LONG, all, n, MPI_LONG, comm);
        for (int i = 0; i < n * size; i++)
            CHECK(all[i] == i / n * 1000L + rank, "alltoall");
        MPI_Reduce_scatter_block(mine, all, n, MPI_LONG, MPI_SUM, comm);
        for (int i = 0; i < n; i++)
            CHECK(all[i] == sum_of_ranks() * 1000 + (long)size * rank, "reduce_scatter");
        MPI_Scan(mine, all, n, MPI_LONG, MPI_SUM, comm);
        for (int i = 0; i < n; i++)
            CHECK(all[i] == (long)rank * (rank + 1) / 2 * 1000, "scan");
        free(mine);
        free(all);
    }
}

/* Each rank has another number of them. */
static void of_unequal_length(MPI_Comm comm) {
    int *counts = calloc(size, sizeof *counts), *begins = calloc(size, sizeof *begins);
    CHECK(counts && begins, "no memory");
    int total = 0;
    for (int i = 0; i < size; i++) {
        counts[i] = 3000 * i + 1;
        begins[i] = total;
        total += counts[i];
    }
    long *mine = numbers((size_t)total), *all = numbers((size_t)total);
    for (int i = 0; i < counts[rank]; i++)
        mine[i] = rank * 100000L + i;
    MPI_Allgatherv(mine, counts[rank], MPI_LONG, all, counts, begins, MPI_LONG, comm);
    for (int from = 0; from < size; from++)
        for (int i = 0; i < counts[from]; i++)
            CHECK(all[begins[from] + i] == from * 100000L + i, "allgatherv");
    free(mine);
    free(all);
    free(counts);
    free(begins);
}

static void at_once(void) {
    enum { LENGTH = 10000 };
    long *texts[3] = {numbers(LENGTH), numbers(LENGTH), numbers(LENGTH)}, sum[LENGTH];
    MPI_Request open[3];
    for (int i = 0; i < LENGTH; i++) {
        texts[0][i] = rank == size - 1 ? i : 0;
        texts[1][i] = rank + i;
    }
    MPI_Ibcast(texts[0], LENGTH, MPI_LONG, size - 1, MPI_COMM_WORLD, &open[0]);
    MPI_Iallreduce(texts[1], sum, LENGTH, MPI_LONG, MPI_SUM, MPI_COMM_WORLD, &open[1]);
    MPI_Ibarrier(MPI_COMM_WORLD, &open[2]);
    MPI_Waitall(3, open, MPI_STATUSES_IGNORE);
    for (int i = 0; i < LENGTH; i++) {
        CHECK(texts[0][i] == i, "ibcast");
        CHECK(sum[i] == sum_of_ranks() + (long)size * i, "iallreduce");
    }
    for (int i = 0; i < 3; i++)
        free(texts[i]);
}

/* Many short ones in a row, as iterations of a solver have them. */
static void in_a_row(void) {
    for (int round = 0; round < 200; round++) {
        long mine = rank + round, sum = 0;
        MPI_Allreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
        CHECK(sum == sum_of_ranks() + (long)size * round, "allreduce in round %d", round);
        MPI_Barrier(MPI_COMM_WORLD);
    }
}

int main(int argc, char **argv) {
    begin(&argc, &argv);
    to_and_from_one(MPI_COMM_WORLD);
    MPI_Comm copy;
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    to_all(copy);
    of_unequal_length(copy);
    MPI_Comm_free(&copy);
    at_once();
    in_a_row();
    return done("collectives");
}
