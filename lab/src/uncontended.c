/* P and V, and send and receive, by one process that nobody disturbs. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>

struct semaphore {
    int id, number, flags;
};

static void p_and_v(void *arg, uint64_t n) {
    const struct semaphore *s = arg;
    struct sembuf p = {
        .sem_num = (unsigned short)s->number, .sem_op = -1, .sem_flg = (short)s->flags};
    struct sembuf v = {
        .sem_num = (unsigned short)s->number, .sem_op = 1, .sem_flg = (short)s->flags};
    for (uint64_t i = 0; i < n; i++)
        if (semop(s->id, &p, 1) != 0 || semop(s->id, &v, 1) != 0)
            die("semop");
}

int bench_semaphore(const char *argument) {
    int many = strcmp(argument, "many") == 0; /* the last of a large set */
    int mode = strcmp(argument, "open") == 0 ? 0666 : 0600;
    struct semaphore s = {.number = many ? 249 : 0};
    s.flags = strcmp(argument, "undo") == 0 ? SEM_UNDO : 0;
    s.id = make_semaphores(s.number + 1, mode);
    sem_add(s.id, s.number, 1, 0);
    report(median_ns(p_and_v, &s), "ns");
    remove_semaphores(s.id);
    return 0;
}

struct queue {
    int id;
    size_t size;
};

static void send_and_receive(void *arg, uint64_t n) {
    static struct message m;
    const struct queue *q = arg;
    m.type = 1;
    for (uint64_t i = 0; i < n; i++) {
        if (msgsnd(q->id, &m, q->size, 0) != 0)
            die("msgsnd");
        if (msgrcv(q->id, &m, q->size, 0, 0) != (ssize_t)q->size)
            die("msgrcv");
    }
}

int bench_queue(const char *argument) {
    struct queue q = {.id = make_queue(0600), .size = (size_t)atol(argument)};
    report(median_ns(send_and_receive, &q), "ns");
    remove_queue(q.id);
    return 0;
}
