/* OpenSHMEM: puts, gets, atomic operations and collectives on the symmetric heap and on static
 * variables. */
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>

#define LENGTH 20000
#define ROUNDS 100

static long counter;

static void check(int good, const char *what) {
    if (!good) {
        fprintf(stderr, "PE %d: %s\n", shmem_my_pe(), what);
        shmem_global_exit(9);
    }
}

static long number(int pe, int i) { return pe * 1000000L + i; }

int main(void) {
    shmem_init();
    int me = shmem_my_pe(), all = shmem_n_pes(), next = (me + 1) % all,
        previous = (me + all - 1) % all;
    long *mine = shmem_malloc(LENGTH * sizeof *mine), *got = malloc(LENGTH * sizeof *got);
    check(mine && got, "no memory");
    for (int i = 0; i < LENGTH; i++)
        got[i] = number(me, i);
    shmem_long_put(mine, got, LENGTH, next);
    shmem_barrier_all();
    for (int i = 0; i < LENGTH; i++)
        check(mine[i] == number(previous, i), "a put number is wrong");
    shmem_long_get(got, mine, LENGTH, next);
    for (int i = 0; i < LENGTH; i++)
        check(got[i] == number(me, i), "a number that was got is wrong");
    for (int i = 0; i < ROUNDS; i++)
        shmem_long_atomic_inc(&counter, 0);
    shmem_barrier_all();
    check(shmem_long_g(&counter, 0) == (long)ROUNDS * all, "not all increments count");
    check(shmem_long_atomic_compare_swap(mine, number(previous, 0), -1, me) == number(previous, 0),
          "compare and swap");
    shmem_barrier_all();
    if (me == 0)
        printf("heap: %d PEs\n", all);
    free(got);
    shmem_free(mine);
    shmem_finalize();
    return 0;
}
