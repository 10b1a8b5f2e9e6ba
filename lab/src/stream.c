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

/* The floor: a ring that only these two processes use, of as many messages as a queue has room for.
 */
struct ring {
    _Alignas(128) atomic_ulong sent;
    _Alignas(128) atomic_ulong received;
    _Alignas(128) char text[];
};

enum { QUEUE_BYTES = 16384 };

struct bare {
    struct ring *ring;
    size_t size;
    unsigned long room;
};

static void bare_send_all(void *arg) {
    static char text[MESSAGE_MAX];
    const struct bare *b = arg;
    struct ring *ring = b->ring;
    pin(1);
    uint64_t end = now_ns() + (uint64_t)(bench_seconds * 1e9);
    unsigned long sent = 0, received = 0;
    for (int last = 0; !last; sent++) {
        last = sent % 64 == 63 && now_ns() >= end;
        while (sent - received >= b->room) {
            received = atomic_load_explicit(&ring->received, memory_order_acquire);
            __builtin_ia32_pause();
        }
        text[0] = (char)last;
        memcpy(ring->text + sent % b->room * b->size, text, b->size);
        atomic_store_explicit(&ring->sent, sent + 1, memory_order_release);
    }
}

static int bare_receive(const struct bare *b, unsigned long received) {
    static char text[MESSAGE_MAX];
    struct ring *ring = b->ring;
    while (atomic_load_explicit(&ring->sent, memory_order_acquire) == received)
        __builtin_ia32_pause();
    memcpy(text, ring->text + received % b->room * b->size, b->size);
    atomic_store_explicit(&ring->received, received + 1, memory_order_release);
    return text[0];
}

static int bare_stream(size_t size) {
    struct bare b = {.size = size, .room = QUEUE_BYTES / size};
    b.ring = shared_memory(sizeof *b.ring + QUEUE_BYTES);
    pid_t pid = child(bare_send_all, &b);
    pin(0);
    unsigned long received = 0;
    bare_receive(&b, received++);
    uint64_t began = now_ns();
    while (!bare_receive(&b, received))
        received++;
    double ns = (double)(now_ns() - began) / (double)received;
    join(pid);
    report(ns, "ns");
    return 0;
}

int bench_stream(const char *argument) {
    if (strncmp(argument, "bare,", 5) == 0)
        return bare_stream((size_t)atol(argument + 5));
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
