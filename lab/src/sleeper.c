/* A process that has waited for long: how soon it answers, and what its waiting costs. */
#include "bench.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/resource.h>
#include <time.h>

struct sleeper {
    int semaphores, queue;
    atomic_uint *stop;
    double *cost; /* of the wait, in microseconds; the child tells it */
};

static void sleep_ns(long ns) {
    struct timespec t = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    while (nanosleep(&t, &t) != 0 && errno == EINTR)
        ;
}

static void answer(void *arg) {
    const struct sleeper *s = arg;
    pin(1);
    for (int last = 0; !last;) {
        sem_add(s->semaphores, 0, -1, 0);
        last = (int)atomic_load(s->stop);
        sem_add(s->semaphores, 1, 1, 0);
    }
}

/* The time from a V after 3 ms of silence until the answer is here. */
static int wake(struct sleeper *s) {
    enum { MOST = 2000 };
    static double sample[MOST];
    pid_t pid = child(answer, s);
    pin(0);
    size_t count = 0;
    uint64_t end = now_ns() + (uint64_t)(bench_seconds * 1e9);
    while (count < 10 || (count < MOST && now_ns() < end)) {
        sleep_ns(3000000);
        uint64_t began = now_ns();
        sem_add(s->semaphores, 0, 1, 0);
        sem_add(s->semaphores, 1, -1, 0);
        sample[count++] = (double)(now_ns() - began);
    }
    atomic_store(s->stop, 1);
    sem_add(s->semaphores, 0, 1, 0);
    join(pid);
    report(median(sample, count), "ns");
    return 0;
}

/* User and system time of this process in microseconds. */
static double used_us(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1e6 +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

static void wait_on_semaphore(void *arg) {
    struct sleeper *s = arg;
    double before = used_us();
    sem_add(s->semaphores, 0, -1, 0);
    *s->cost = used_us() - before;
}

static void wait_on_queue(void *arg) {
    static struct message m;
    struct sleeper *s = arg;
    double before = used_us();
    if (msgrcv(s->queue, &m, sizeof m.text, 0, 0) != 8)
        die("msgrcv");
    *s->cost = used_us() - before;
}

/* What a process spends on waiting, in microseconds per second of it. */
static int cost(struct sleeper *s, int on_queue) {
    static struct message m = {.type = 1};
    pid_t pid = child(on_queue ? wait_on_queue : wait_on_semaphore, s);
    double seconds = bench_seconds * 10; /* long against the spinning before it */
    sleep_ns((long)(seconds * 1e9));
    if (!on_queue)
        sem_add(s->semaphores, 0, 1, 0);
    else if (msgsnd(s->queue, &m, 8, 0) != 0)
        die("msgsnd");
    join(pid);
    report(*s->cost / seconds, "us/s");
    return 0;
}

int bench_sleeper(const char *argument) {
    struct sleeper s = {.semaphores = make_semaphores(2, 0600), .queue = make_queue(0600)};
    s.stop = shared_memory(sizeof *s.stop);
    s.cost = shared_memory(sizeof *s.cost);
    int result;
    if (strcmp(argument, "wake") == 0)
        result = wake(&s);
    else
        result = cost(&s, strcmp(argument, "queue") == 0);
    remove_semaphores(s.semaphores);
    remove_queue(s.queue);
    return result;
}
