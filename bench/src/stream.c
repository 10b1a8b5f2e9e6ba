/* One process sends as fast as it can, another receives, each on a processor of its own. */
#include "bench.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/msg.h>

enum { DATA = 1, LAST = 2 };

struct stream {
    int id;
    size_t size;
};

static void send_all(void *arg) {
    static struct message m;
    const struct stream *s = arg;
    pin(1);
    uint64_t end = now_ns() + (uint64_t)(bench_seconds * 1e9);
    m.type = DATA;
    for (uint64_t sent = 1; m.type == DATA; sent++) {
        if (sent % 64 == 0 && now_ns() >= end)
            m.type = LAST;
        if (msgsnd(s->id, &m, s->size, 0) != 0)
            die("msgsnd");
    }
}

static long receive_one(const struct stream *s) {
    static struct message m;
    if (msgrcv(s->id, &m, s->size, 0, 0) != (ssize_t)s->size)
        die("msgrcv");
    return m.type;
}

int bench_stream(const char *argument) {
    struct stream s = {.id = make_queue(0600), .size = (size_t)atol(argument)};
    pid_t pid = child(send_all, &s);
    pin(0);
    receive_one(&s); /* the clock starts when the sender runs */
    uint64_t began = now_ns(), received = 0;
    do
        received++;
    while (receive_one(&s) != LAST);
    double ns = (double)(now_ns() - began) / (double)received;
    join(pid);
    remove_queue(s.id);
    report(ns, "ns");
    return 0;
}
