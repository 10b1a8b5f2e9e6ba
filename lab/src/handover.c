/* There and back between two processes on two processors: by System V, and by POSIX semaphores.
 */
#include "bench.h"

#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <unistd.h>

enum { PAYLOAD = 64 };

/* What both sides see; every word in a cache line of its own. */
struct table {
    _Alignas(128) atomic_uint turn; /* bare: odd for the partner, even for the first side */
    _Alignas(128) atomic_uint stop; /* set before the last hand-over */
    _Alignas(128) sem_t there;      /* POSIX semaphores */
    _Alignas(128) sem_t back;
};

struct side {
    struct table *table;
    int there, back; /* semaphores: one set, numbers 0 and 1. queues: ids */
    long type_there, type_back;
    int partner_processor;
    void (*give)(struct side *, int forward);
    void (*take)(struct side *, int forward);
};

static void bare_give(struct side *s, int forward) {
    atomic_store_explicit(&s->table->turn, forward ? 1 : 0, memory_order_release);
}

static void bare_take(struct side *s, int forward) {
    unsigned mine = forward ? 1 : 0;
    while (atomic_load_explicit(&s->table->turn, memory_order_acquire) != mine)
        __builtin_ia32_pause();
}

static void semaphore_give(struct side *s, int forward) {
    sem_add(s->there, forward ? 0 : 1, 1, 0);
}

static void semaphore_take(struct side *s, int forward) {
    sem_add(s->there, forward ? 0 : 1, -1, 0);
}

static void queue_give(struct side *s, int forward) {
    struct {
        long type;
        char text[PAYLOAD];
    } m = {.type = forward ? s->type_there : s->type_back};
    if (msgsnd(forward ? s->there : s->back, &m, sizeof m.text, 0) != 0)
        die("msgsnd");
}

static void queue_take(struct side *s, int forward) {
    struct {
        long type;
        char text[PAYLOAD];
    } m;
    long type = s->there == s->back ? (forward ? s->type_there : s->type_back) : 0;
    if (msgrcv(forward ? s->there : s->back, &m, sizeof m.text, type, 0) != PAYLOAD)
        die("msgrcv");
}

static void posix_give(struct side *s, int forward) {
    if (sem_post(forward ? &s->table->there : &s->table->back) != 0)
        die("sem_post");
}

static void posix_take(struct side *s, int forward) {
    if (sem_wait(forward ? &s->table->there : &s->table->back) != 0)
        die("sem_wait");
}

static void partner(void *arg) {
    struct side *s = arg;
    pin(s->partner_processor);
    for (int last = 0; !last;) {
        s->take(s, 1);
        last = (int)atomic_load_explicit(&s->table->stop, memory_order_relaxed);
        s->give(s, 0);
    }
}

static void rounds(void *arg, uint64_t n) {
    struct side *s = arg;
    for (uint64_t i = 0; i < n; i++) {
        s->give(s, 1);
        s->take(s, 0);
    }
}

static void measure(struct side *s) {
    s->table = shared_memory(sizeof *s->table);
    if (sem_init(&s->table->there, 1, 0) != 0 || sem_init(&s->table->back, 1, 0) != 0)
        die("sem_init");
    s->partner_processor = 1;
    pid_t pid = child(partner, s);
    pin(0);
    printf("%.4g ns", median_ns(rounds, s));
    print_tail(rounds, s);
    printf("\n");
    atomic_store(&s->table->stop, 1);
    rounds(s, 1);
    join(pid);
}

static void with_semaphores(void) {
    struct side s = {
        .there = make_semaphores(2, 0600), .give = semaphore_give, .take = semaphore_take};
    measure(&s);
    remove_semaphores(s.there);
}

/* Two queues, or one queue with a message type for each direction. */
static void with_queues(int one) {
    struct side s = {
        .give = queue_give, .take = queue_take, .type_there = 1, .type_back = one ? 2 : 1};
    s.there = make_queue(0600);
    s.back = one ? s.there : make_queue(0600);
    measure(&s);
    remove_queue(s.there);
    if (!one)
        remove_queue(s.back);
}

int bench_handover(const char *argument) {
    if (strcmp(argument, "bare") == 0) {
        struct side s = {.give = bare_give, .take = bare_take};
        measure(&s);
    } else if (strcmp(argument, "semaphore") == 0) {
        with_semaphores();
    } else if (strcmp(argument, "posix") == 0) {
        struct side s = {.give = posix_give, .take = posix_take};
        measure(&s);
    } else {
        with_queues(strcmp(argument, "types") == 0);
    }
    return 0;
}
