/* A bare ring in shared memory, for one sender and one receiver that poll: what rtrb and its kind
 * are. It knows no types, lets nobody sleep, and a killed peer is never noticed. */
#include "../bench.h"
#include "libc.h"

#include <stdatomic.h>
#include <string.h>

/* As many bytes as a System V queue has room for, or a few slots that caches hold. */
enum { BYTES = 16384, SLOTS = 4, SLOT = 256 << 10 };

static struct ring {
    _Alignas(128) atomic_ulong sent;
    _Alignas(128) atomic_ulong received;
    _Alignas(128) char text[];
} * rings[PROCESSES];
static size_t slot, room;
static int mine;

/* What this process knows of both ends; it looks only when it must. */
static struct { unsigned long sent, received; } writer[PROCESSES], reader;

static size_t make(int processes, size_t size) {
    slot = size < SLOT ? size : SLOT;
    room = BYTES / slot < SLOTS ? SLOTS : BYTES / slot;
    for (int i = 0; i < processes; i++)
        rings[i] = shared_memory(sizeof *rings[i] + room * slot);
    return slot;
}

static void open_inbox(int me) { mine = me; }

static void send_message(int to, const void *message, size_t size) {
    struct ring *r = rings[to];
    unsigned long sent = writer[to].sent++;
    unsigned times = 0;
    while (sent - writer[to].received >= room) {
        writer[to].received = atomic_load_explicit(&r->received, memory_order_acquire);
        if (sent - writer[to].received >= room)
            idle(&times);
    }
    memcpy(r->text + sent % room * slot, message, size);
    atomic_store_explicit(&r->sent, sent + 1, memory_order_release);
}

static void receive_message(void *message, size_t size) {
    struct ring *r = rings[mine];
    unsigned times = 0;
    while (reader.sent == reader.received) {
        reader.sent = atomic_load_explicit(&r->sent, memory_order_acquire);
        if (reader.sent == reader.received)
            idle(&times);
    }
    memcpy(message, r->text + reader.received++ % room * slot, size);
    atomic_store_explicit(&r->received, reader.received, memory_order_release);
}

const struct channel ring = {
    .name = "ring",
    .make = make,
    .open = open_inbox,
    .send = send_message,
    .receive = receive_message,
    .close = nothing,
    .remove = nothing,
    .one_sender = 1,
};
