/* One-sided: windows over memory of the program's own. The argument says how accesses are ordered:
   fence, lock, atomic or post. */
#include "job.h"

#define LENGTH 40000

static long *memory, *mine;
static MPI_Win window;

static void open_window(void) {
    memory = calloc(LENGTH, sizeof *memory);
    mine = calloc(LENGTH, sizeof *mine);
    CHECK(memory && mine, "no memory");
    MPI_Win_create(memory, LENGTH * sizeof *memory, sizeof *memory, MPI_INFO_NULL, MPI_COMM_WORLD,
                   &window);
}

static void close_window(void) {
    MPI_Win_free(&window);
    free(memory);
    free(mine);
}

static void write_numbers(long of) {
    for (int i = 0; i < LENGTH; i++)
        mine[i] = of * 1000000 + i;
}

static void check_numbers(const long *numbers, long of) {
    for (int i = 0; i < LENGTH; i++)
        CHECK(numbers[i] == of * 1000000 + i, "number %d is %ld", i, numbers[i]);
}

static void fence(void) {
    int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    for (int round = 0; round < 10; round++) {
        write_numbers(rank + round);
        MPI_Win_fence(0, window);
        MPI_Put(mine, LENGTH, MPI_LONG, next, 0, LENGTH, MPI_LONG, window);
        MPI_Win_fence(0, window);
        check_numbers(memory, previous + round);
        MPI_Win_fence(0, window);
        MPI_Get(mine, LENGTH, MPI_LONG, next, 0, LENGTH, MPI_LONG, window);
        MPI_Win_fence(0, window);
        check_numbers(mine, rank + round);
    }
    memset(memory, 0, LENGTH * sizeof *memory);
    write_numbers(0);
    MPI_Win_fence(0, window);
    for (int peer = 0; peer < size; peer++)
        MPI_Accumulate(mine, LENGTH, MPI_LONG, peer, 0, LENGTH, MPI_LONG, MPI_SUM, window);
    MPI_Win_fence(0, window);
    for (int i = 0; i < LENGTH; i++)
        CHECK(memory[i] == (long)i * size, "sum %d is %ld", i, memory[i]);
}

/* All ranks add to one number, which only the lock keeps right. */
static void lock(void) {
    enum { ROUNDS = 100 };
    long value;
    MPI_Barrier(MPI_COMM_WORLD);
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window);
        MPI_Get(&value, 1, MPI_LONG, 0, 7, 1, MPI_LONG, window);
        MPI_Win_flush(0, window);
        value++;
        MPI_Put(&value, 1, MPI_LONG, 0, 7, 1, MPI_LONG, window);
        MPI_Win_unlock(0, window);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
    MPI_Get(&value, 1, MPI_LONG, 0, 7, 1, MPI_LONG, window);
    MPI_Win_unlock(0, window);
    CHECK(value == (long)ROUNDS * size, "%ld instead of %ld", value, (long)ROUNDS * size);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void atomic(void) {
    enum { ROUNDS = 100 };
    long one = 1, before, sum = 0, free_for = -1, me = rank;
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock_all(0, window);
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Fetch_and_op(&one, &before, MPI_LONG, size - 1, 3, MPI_SUM, window);
        MPI_Win_flush(size - 1, window);
        sum += before;
    }
    MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    long calls = (long)ROUNDS * size;
    CHECK(sum == calls * (calls - 1) / 2, "each number up to %ld was not given out once", calls);
    if (rank == 0)
        MPI_Put(&free_for, 1, MPI_LONG, 0, 4, 1, MPI_LONG, window);
    MPI_Win_flush(0, window);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Compare_and_swap(&me, &free_for, &before, MPI_LONG, 0, 4, window);
    MPI_Win_flush(0, window);
    int won = before == -1;
    MPI_Allreduce(MPI_IN_PLACE, &won, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    CHECK(won == 1, "%d ranks have won", won);
    MPI_Win_unlock_all(window);
}

/* Each rank names the ranks that may write to it, and those that it writes to. */
static void post(void) {
    int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    MPI_Group all, writers, targets;
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Group_incl(all, 1, &previous, &writers);
    MPI_Group_incl(all, 1, &next, &targets);
    for (int round = 0; round < 10; round++) {
        write_numbers(rank + round);
        MPI_Win_post(writers, 0, window);
        MPI_Win_start(targets, 0, window);
        MPI_Put(mine, LENGTH, MPI_LONG, next, 0, LENGTH, MPI_LONG, window);
        MPI_Win_complete(window);
        MPI_Win_wait(window);
        check_numbers(memory, previous + round);
    }
    MPI_Group_free(&all);
    MPI_Group_free(&writers);
    MPI_Group_free(&targets);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)(void);
    } ways[] = {{"fence", fence}, {"lock", lock}, {"atomic", atomic}, {"post", post}};
    begin(&argc, &argv);
    CHECK(argc == 2, "usage: onesided fence|lock|atomic|post");
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        if (!strcmp(ways[i].name, argv[1])) {
            open_window();
            ways[i].run();
            close_window();
            return done(argv[1]);
        }
    CHECK(0, "there is no way %s", argv[1]);
    return 2;
}
