/* What loading the library costs: it is loaded into fresh processes, by LD_PRELOAD or not; medians
 * are compared. */
#include "check.h"

enum { RUNS = 201 };
extern char **environ;

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double microseconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static double one_start(void) {
    double begin = microseconds();
    pid_t child = vfork();
    if (child == 0) {
        execl("/bin/true", "true", (char *)NULL);
        _exit(127);
    }
    wait_for_success(child);
    return microseconds() - begin;
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    static double with[RUNS], without[RUNS];
    for (int i = 0; i < RUNS; i++) {
        CHECK(setenv("LD_PRELOAD", arguments[1], 1) == 0);
        with[i] = one_start();
        CHECK(unsetenv("LD_PRELOAD") == 0);
        without[i] = one_start();
    }
    qsort(with, RUNS, sizeof *with, compare);
    qsort(without, RUNS, sizeof *without, compare);
    double cost = with[RUNS / 2] - without[RUNS / 2];
    printf("%.0f us more at start (%.0f with, %.0f without)\n", cost, with[RUNS / 2],
           without[RUNS / 2]);
    CHECK(cost < 1000);
    return 0;
}
