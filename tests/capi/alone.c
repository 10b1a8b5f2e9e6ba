/* The last party to arrive at a barrier enters no kernel where nobody sleeps, nor to see that
 * values are there. A program apart from barrier.c: valgrind, under which that runs, makes system
 * calls of its own. */
#include "entered.h"
#include <vshmem.h>

enum { KEY = 0xba3 };
static vshm_barrier *barrier;

static void meet_alone(void) {
    double value = 1;
    CHECK(vshm_barrier_wait(barrier, NULL) == 1);
    CHECK(vshm_reduce_double(barrier, &value, 1, VSHM_SUM, NULL) == 0 && value == 1);
}

int main(void) {
    pid_t child = fork();
    if (child == 0) {
        CHECK((barrier = vshm_barrier_open(KEY, 1)) != NULL);
        meet_alone(), meet_alone();
        count_system_calls();
        CHECK(fewest_entered(meet_alone) == 0);
        _exit(0);
    }
    wait_for_success(child);
    GIVES(vshm_barrier_remove(KEY), 0);
    return 0;
}
