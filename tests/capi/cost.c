/* What loading the library costs: it is loaded into fresh processes, by LD_PRELOAD or not. The
 * fastest of each are compared: on a busy machine most wait for their turn. */
#include "capi.h"

enum { RUNS = 201 };
extern char **environ;

static double least(double a, double b) { return a < b ? a : b; }

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
    double with = 1e9, without = 1e9;
    for (int i = 0; i < RUNS; i++) {
        CHECK(setenv("LD_PRELOAD", arguments[1], 1) == 0);
        with = least(with, one_start());
        CHECK(unsetenv("LD_PRELOAD") == 0);
        without = least(without, one_start());
    }
    double cost = with - without;
    printf("%.0f us more at start (%.0f with, %.0f without)\n", cost, with, without);
    CHECK(cost < 1000);
    return 0;
}
