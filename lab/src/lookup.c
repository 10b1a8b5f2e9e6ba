/* Ten IPC objects among N: finding one by key, attaching one, operating on one.
 *
 * The IPC objects that are used are ten however many there are, so the difference between few and
 * many is what finding costs, and not what the processor's caches can hold.
 */
#include "bench.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/sem.h>
#include <sys/shm.h>

enum { USED = 10, FIRST_KEY = 0x56000000 };

struct crowd {
    int sets, segments;
    int *id; /* of the sets, then of the segments */
    int key[USED], set[USED], segment[USED];
};

static void remove_all(const struct crowd *c) {
    for (int i = 0; i < c->sets; i++)
        remove_semaphores(c->id[i]);
    for (int i = c->sets; i < c->sets + c->segments; i++)
        if (shmctl(c->id[i], IPC_RMID, NULL) != 0)
            die("shmctl IPC_RMID");
}

/* Nothing must stay behind when a limit turns out to be too low. */
static void give_up(struct crowd *c, int made, const char *what) {
    int error = errno;
    c->segments = made > c->sets ? made - c->sets : 0;
    c->sets = made < c->sets ? made : c->sets;
    remove_all(c);
    errno = error;
    die(what);
}

static void make_all(struct crowd *c) {
    c->id = calloc((size_t)(c->sets + c->segments), sizeof *c->id);
    if (c->id == NULL)
        die("calloc");
    for (int i = 0; i < c->sets + c->segments; i++) {
        int flags = IPC_CREAT | IPC_EXCL | 0600, key = FIRST_KEY + i;
        c->id[i] = i < c->sets ? semget(key, 1, flags) : shmget(key, 4096, flags);
        if (c->id[i] < 0)
            give_up(c, i,
                    i < c->sets ? "semget of one among many (is the limit of sets too low?)"
                                : "shmget of one among many (is the limit of segments too low?)");
    }
    for (int i = 0; i < USED; i++) { /* spread evenly */
        int set = (int)((long)i * (c->sets - 1) / (USED - 1));
        int segment = (int)((long)i * (c->segments - 1) / (USED - 1));
        c->key[i] = FIRST_KEY + set;
        c->set[i] = c->id[set];
        c->segment[i] = c->id[c->sets + segment];
    }
}

static void get(void *arg, uint64_t n) {
    const struct crowd *c = arg;
    for (uint64_t i = 0; i < n; i++)
        if (semget(c->key[i % USED], 1, 0) != c->set[i % USED])
            die("semget by key");
}

static void attach(void *arg, uint64_t n) {
    const struct crowd *c = arg;
    for (uint64_t i = 0; i < n; i++) {
        volatile char *at = shmat(c->segment[i % USED], NULL, 0);
        if (at == (void *)-1)
            die("shmat");
        *at = 1;
        if (shmdt((const void *)at) != 0)
            die("shmdt");
    }
}

static void operate(void *arg, uint64_t n) {
    const struct crowd *c = arg;
    for (uint64_t i = 0; i < n; i++) {
        sem_add(c->set[i % USED], 0, 1, 0);
        sem_add(c->set[i % USED], 0, -1, 0);
    }
}

/* One run makes the IPC objects once and prints three lines: get, attach, operate. */
int bench_lookup(const char *argument) {
    struct crowd c = {0};
    if (sscanf(argument, "%d,%d", &c.sets, &c.segments) != 2 || c.sets < 1 || c.segments < 1) {
        fprintf(stderr, "bench: lookup needs SETS,SEGMENTS\n");
        return 2;
    }
    make_all(&c);
    report(median_ns(get, &c), "ns");
    report(median_ns(attach, &c), "ns");
    report(median_ns(operate, &c), "ns");
    remove_all(&c);
    free(c.id);
    return 0;
}
