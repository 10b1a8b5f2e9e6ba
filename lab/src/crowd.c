/* More processes than processors: on one semaphore, one set, one queue, and a token that goes
 * round. Two results: nanoseconds per operation of all, and the fair share over the least that one
 * of them got (1: all got the same). */
#include "bench.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <time.h>

enum { MOST = 1024, TEXT = 64, LAST = 2 /* a message's type: leave */ };

struct crowd {
    int id, size;
    int number; /* of this process */
    int start;  /* the semaphore that all wait for at first */
    atomic_uint *stop;
    atomic_ulong *done; /* operations, of each process */
};

static int is_over(const struct crowd *c) {
    return (int)atomic_load_explicit(c->stop, memory_order_relaxed);
}

static void wait_for_start(const struct crowd *c) { sem_add(c->start, 0, -1, 0); }

static void record(const struct crowd *c, unsigned long done) {
    atomic_store(&c->done[c->number], done);
}

/* About n steps that the compiler can't leave out. */
static void work(unsigned n) {
    for (volatile unsigned i = 0; i < n; i++)
        ;
}

static void want_mutex(const struct crowd *c, int flags) {
    wait_for_start(c);
    unsigned long done = 0;
    for (; !is_over(c); done++) {
        sem_add(c->id, 0, -1, flags);
        work(200);
        sem_add(c->id, 0, 1, flags);
        work(200);
    }
    record(c, done);
}

static void want_plainly(void *arg) { want_mutex(arg, 0); }

static void want_undone(void *arg) { want_mutex(arg, SEM_UNDO); }

/* Two neighbours of the set at once, as philosophers take forks. */
static void want_two(void *arg) {
    const struct crowd *c = arg;
    const unsigned short one = (unsigned short)c->number;
    const unsigned short other = (unsigned short)((c->number + 1) % c->size);
    struct sembuf take[] = {{one, -1, 0}, {other, -1, 0}}, give[] = {{one, 1, 0}, {other, 1, 0}};
    wait_for_start(c);
    unsigned long done = 0;
    for (; !is_over(c); done++) {
        if (semop(c->id, take, 2) != 0)
            die("semop");
        work(200);
        if (semop(c->id, give, 2) != 0)
            die("semop");
        work(200);
    }
    record(c, done);
}

/* Half of them send, the others receive. */
static void use_queue(void *arg) {
    const struct crowd *c = arg;
    struct message m = {.type = 1};
    wait_for_start(c);
    unsigned long done = 0;
    if (c->number % 2 == 0) {
        for (; !is_over(c); done++)
            if (msgsnd(c->id, &m, TEXT, 0) != 0)
                die("msgsnd");
    } else {
        for (; m.type != LAST; done++)
            if (msgrcv(c->id, &m, TEXT, 0, 0) != TEXT)
                die("msgrcv");
    }
    record(c, done);
}

/* Waits for its own semaphore, raises the next one's. The first raises to begin, everyone
 * passes the token on once more after the end, so that all leave. */
static void pass_token(void *arg) {
    const struct crowd *c = arg;
    wait_for_start(c);
    unsigned long done = 0;
    for (int last = 0; !last; done++) {
        sem_add(c->id, c->number, -1, 0);
        last = is_over(c);
        sem_add(c->id, (c->number + 1) % c->size, 1, 0);
    }
    record(c, done);
}

static const struct kind {
    const char *name;
    void (*run)(void *crowd);
    int each, free; /* semaphores of each process; the first of them that are free (-1: all) */
} kinds[] = {
    {"mutex", want_plainly, 0, 1}, {"undo", want_undone, 0, 1}, {"set", want_two, 1, -1},
    {"queue", use_queue, -1, 0},   {"ring", pass_token, 1, 1},
};

static const struct kind *kind_of(const char *argument) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        size_t length = strlen(kinds[i].name);
        if (strncmp(argument, kinds[i].name, length) == 0 && argument[length] == ',')
            return &kinds[i];
    }
    return NULL;
}

static void sleep_for(double seconds) {
    struct timespec t = {.tv_sec = (time_t)seconds};
    t.tv_nsec = (long)((seconds - (double)t.tv_sec) * 1e9);
    nanosleep(&t, NULL);
}

/* Senders leave by themselves; a message for each receiver comes after all of theirs. */
static void end_queue(const struct crowd *c, const pid_t *pid) {
    const struct message last = {.type = LAST};
    for (int i = 0; i < c->size; i += 2)
        join(pid[i]);
    for (int i = 1; i < c->size; i += 2)
        if (msgsnd(c->id, &last, TEXT, 0) != 0)
            die("msgsnd");
    for (int i = 1; i < c->size; i += 2)
        join(pid[i]);
    remove_queue(c->id);
}

static void end_set(const struct crowd *c, const pid_t *pid) {
    for (int i = 0; i < c->size; i++)
        join(pid[i]);
    remove_semaphores(c->id);
}

/* Of those that do the same: each `step`-th from `first` on. */
static double unfairness(const struct crowd *c, int first, int step) {
    double all = 0, least = 1e300;
    int count = 0;
    for (int i = first; i < c->size; i += step, count++) {
        double done = (double)atomic_load(&c->done[i]);
        all += done;
        least = done < least ? done : least;
    }
    return all / count / (least > 0 ? least : 1);
}

/* N for each processor, or =N altogether. */
static int size_of(const char *count) {
    return *count == '=' ? atoi(count + 1) : atoi(count) * processors();
}

int bench_crowd(const char *argument) {
    struct crowd c = {0};
    const struct kind *kind = kind_of(argument);
    const char *comma = strchr(argument, ',');
    if (strstr(argument, ",long") != NULL) /* for shares: slices of processors even out */
        bench_seconds *= 10;
    if (kind == NULL || (c.size = size_of(comma + 1)) < 1 || c.size > MOST) {
        fprintf(stderr, "bench: crowd needs mutex|undo|set|queue|ring,[=]N[,long]\n");
        return 2;
    }
    int is_queue = kind->each < 0;
    c.size += is_queue && c.size % 2;
    c.stop = shared_memory(sizeof *c.stop);
    c.done = shared_memory((size_t)c.size * sizeof *c.done);
    c.start = make_semaphores(1, 0600);
    int semaphores = kind->each > 0 ? c.size : 1;
    c.id = is_queue ? make_queue(0600) : make_semaphores(semaphores, 0600);
    for (int i = 0; i < (kind->free < 0 ? semaphores : kind->free); i++)
        sem_add(c.id, i, 1, 0);
    pid_t pid[MOST];
    for (c.number = 0; c.number < c.size; c.number++)
        pid[c.number] = child(kind->run, &c);
    sleep_for(0.05); /* all of them wait now */
    uint64_t began = now_ns();
    sem_add(c.start, 0, c.size, 0);
    sleep_for(bench_seconds);
    atomic_store(c.stop, 1);
    double ns = (double)(now_ns() - began), done = 0;
    (is_queue ? end_queue : end_set)(&c, pid);
    remove_semaphores(c.start);
    for (int i = 0; i < c.size; i++)
        done += (double)atomic_load(&c.done[i]);
    report(ns / done, "ns");
    double worst = unfairness(&c, 0, is_queue ? 2 : 1);
    if (is_queue && unfairness(&c, 1, 2) > worst)
        worst = unfairness(&c, 1, 2);
    report(worst, "x");
    return 0;
}
