/* More processes than processors: a mutex that all of them want, and a token that goes round. */
#include "bench.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sem.h>
#include <time.h>

enum { MOST = 1024 };

struct crowd {
    int id, size;
    int number; /* of this process */
    atomic_uint *stop;
    atomic_ulong *done; /* operations of all */
};

/* About n steps that the compiler can't leave out. */
static void work(unsigned n) {
    for (volatile unsigned i = 0; i < n; i++)
        ;
}

static void want_mutex(void *arg) {
    const struct crowd *c = arg;
    sem_add(c->id, 1, -1, 0); /* the start */
    unsigned long done = 0;
    while (!atomic_load_explicit(c->stop, memory_order_relaxed)) {
        sem_add(c->id, 0, -1, 0);
        work(200);
        sem_add(c->id, 0, 1, 0);
        work(200);
        done++;
    }
    atomic_fetch_add(c->done, done);
}

/* Waits for its own semaphore, raises the next one's. The first raises to begin, everyone
 * passes the token on once more after the end, so that all leave. */
static void pass_token(void *arg) {
    const struct crowd *c = arg;
    unsigned long done = 0;
    for (int last = 0; !last;) {
        sem_add(c->id, c->number, -1, 0);
        last = (int)atomic_load(c->stop);
        sem_add(c->id, (c->number + 1) % c->size, 1, 0);
        done++;
    }
    atomic_fetch_add(c->done, done);
}

static void sleep_for(double seconds) {
    struct timespec t = {.tv_sec = (time_t)seconds};
    t.tv_nsec = (long)((seconds - (double)t.tv_sec) * 1e9);
    nanosleep(&t, NULL);
}

int bench_crowd(const char *argument) {
    int each = 0, ring = strncmp(argument, "ring", 4) == 0;
    const char *comma = strchr(argument, ',');
    struct crowd c = {0};
    if (comma == NULL || (each = atoi(comma + 1)) < 1 || (c.size = each * processors()) > MOST) {
        fprintf(stderr, "bench: crowd needs mutex,N or ring,N\n");
        return 2;
    }
    c.stop = shared_memory(sizeof *c.stop + 256);
    c.done = shared_memory(sizeof *c.done);
    c.id = make_semaphores(ring ? c.size : 2, 0600);
    pid_t pid[MOST];
    for (c.number = 0; c.number < c.size; c.number++)
        pid[c.number] = child(ring ? pass_token : want_mutex, &c);
    sleep_for(0.05); /* all of them wait now */
    uint64_t began = now_ns();
    sem_add(c.id, 0, 1, 0);
    if (!ring)
        sem_add(c.id, 1, c.size, 0);
    sleep_for(bench_seconds);
    atomic_store(c.stop, 1);
    double ns = (double)(now_ns() - began);
    for (int i = 0; i < c.size; i++)
        join(pid[i]);
    remove_semaphores(c.id);
    report(ns / (double)atomic_load(c.done), "ns");
    return 0;
}
