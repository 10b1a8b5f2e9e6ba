/*
 * fwq QUANTA NANOSECONDS: a fixed-work-quantum benchmark. The same work, calibrated to take about
 * that long, is done over and over. What took longer than the shortest was taken away by the
 * system, or by the host below it. Prints the shortest, the median, the 99th percentile and the
 * longest, and the noise: by how much all of them together took longer than at their shortest.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Work without memory. */
static uint64_t work(uint64_t rounds) {
    uint64_t x = 88172645463325252u;
    for (uint64_t i = 0; i < rounds; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    return x;
}

static int by_size(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

int main(int argc, char **argv) {
    size_t quanta = argc > 1 ? strtoul(argv[1], NULL, 10) : 0;
    uint64_t wanted = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
    uint64_t *took = calloc(quanta, sizeof *took), sum = 0, least = UINT64_MAX;
    volatile uint64_t kept = 0;
    if (quanta == 0 || wanted == 0 || took == NULL) {
        fprintf(stderr, "usage: fwq QUANTA NANOSECONDS\n");
        return 2;
    }
    /* The best of several, so that the noise is not part of it. */
    for (int i = 0; i < 20; i++) {
        uint64_t begun = now();
        kept += work(100000);
        uint64_t took_now = now() - begun;
        if (took_now < least)
            least = took_now;
    }
    uint64_t rounds = wanted * 100000 / least + 1;
    for (size_t i = 0; i < quanta; i++) {
        uint64_t begun = now();
        kept += work(rounds);
        took[i] = now() - begun;
    }
    qsort(took, quanta, sizeof *took, by_size);
    for (size_t i = 0; i < quanta; i++)
        sum += took[i];
    double shortest = (double)took[0], noise = ((double)sum / (double)quanta / shortest - 1) * 100;
    printf("shortest %.1f us, median %.1f, 99%% %.1f, longest %.1f, noise %.2f %%\n",
           shortest / 1e3, (double)took[quanta / 2] / 1e3,
           (double)took[quanta - 1 - quanta / 100] / 1e3, (double)took[quanta - 1] / 1e3, noise);
    return 0;
}
