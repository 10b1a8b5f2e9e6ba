/* System V: queues; and segments of a few slots, which two semaphores count. The kernel's, or under
 * the interposer Vshmem's. */
#include "../bench.h"
#include "channel.h"
#include "libc.h"

#include <errno.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>

/* What ipcs -l shows as the limits of a message and of a queue, on most systems. */
enum { MOST = 8192 };

static int queue[PROCESSES];

static size_t make_queues(int processes, size_t size) {
    for (int i = 0; i < processes; i++)
        queue[i] = make_queue(0600);
    return size < MOST ? size : MOST;
}

static void remove_queues(void) {
    for (int i = 0; i < process_count(); i++)
        remove_queue(queue[i]);
}

static struct {
    long type;
    char text[MOST];
} letter = {.type = 1};

static void send_to_queue(int to, const void *message, size_t size) {
    memcpy(letter.text, message, size);
    while (msgsnd(queue[to], &letter, size, 0) != 0)
        if (errno != EINTR)
            die("msgsnd");
}

static int mine;

static void receive_from_queue(void *message, size_t size) {
    ssize_t got;
    while ((got = msgrcv(queue[mine], &letter, size, 0, 0)) < 0 && errno == EINTR)
        ;
    if (got != (ssize_t)size)
        die("msgrcv");
    memcpy(message, letter.text, size);
}

static void open_inbox(int me) { mine = me; }

const struct channel sysv_queues = {
    .name = "queue",
    .make = make_queues,
    .open = open_inbox,
    .send = send_to_queue,
    .receive = receive_from_queue,
    .close = nothing,
    .remove = remove_queues,
};

/* Slots of a segment. A large message passes through them in pieces that caches hold, so that both
 * sides copy at the same time. */
enum { SLOTS = 4, SLOT = 256 << 10 };
enum { ROOM, FILLED, SEMAPHORES };

static struct inbox {
    int segment, semaphores;
    char *slots;
    size_t sent, received; /* of this process */
} inbox[PROCESSES];
static size_t slot;

static size_t make_segments(int processes, size_t size) {
    slot = size < SLOT ? size : SLOT;
    for (int i = 0; i < processes; i++) {
        struct inbox *in = &inbox[i];
        in->semaphores = make_semaphores(SEMAPHORES, 0600);
        sem_add(in->semaphores, ROOM, SLOTS, 0);
        in->segment = shmget(IPC_PRIVATE, SLOTS * slot, IPC_CREAT | 0600);
        in->slots = in->segment < 0 ? (void *)-1 : shmat(in->segment, NULL, 0);
        if (in->slots == (void *)-1)
            die("a segment");
    }
    return slot;
}

static void remove_segments(void) {
    for (int i = 0; i < process_count(); i++) {
        remove_semaphores(inbox[i].semaphores);
        if (shmctl(inbox[i].segment, IPC_RMID, NULL) != 0)
            die("shmctl IPC_RMID");
    }
}

static void put_into_slot(int to, const void *message, size_t size) {
    struct inbox *in = &inbox[to];
    sem_add(in->semaphores, ROOM, -1, 0);
    memcpy(in->slots + in->sent++ % SLOTS * slot, message, size);
    sem_add(in->semaphores, FILLED, 1, 0);
}

static void take_from_slot(void *message, size_t size) {
    struct inbox *in = &inbox[mine];
    sem_add(in->semaphores, FILLED, -1, 0);
    memcpy(message, in->slots + in->received++ % SLOTS * slot, size);
    sem_add(in->semaphores, ROOM, 1, 0);
}

const struct channel sysv_segments = {
    .name = "segment",
    .make = make_segments,
    .open = open_inbox,
    .send = put_into_slot,
    .receive = take_from_slot,
    .close = nothing,
    .remove = remove_segments,
    .one_sender = 1,
};
