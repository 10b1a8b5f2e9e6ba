/* Ping-pong between two processes over System V IPC: the same command is started twice, anywhere.
 *
 *   pingpong [-k KEY] [-i INTERVAL | -r ROUNDS] [-t SECONDS] METHOD SIZE [METHOD SIZE]...
 *
 * METHOD is
 *   bare       both sides spin on two words of a segment: the floor (SIZE is ignored)
 *   semaphore  two semaphores, no payload (SIZE is ignored)
 *   segment    SIZE bytes are copied into a segment, a semaphore hands them over, they are copied
 * out queue      SIZE bytes as messages of a queue each way, in pieces if a message can't hold them
 *
 * ROUNDS is how many of them are timed at once; 64 without it. Both processes need the same. With
 * INTERVAL, in nanoseconds, a round is due so often, and takes from then, not from when the one
 * before let it begin (an open loop, without coordinated omission).
 *
 * The process that makes the semaphores leads: it measures, prints a line for each METHOD SIZE, and
 * removes everything. A line is "METHOD SIZE NANOSECONDS PIECES P50 P99 P99.9": the median time
 * there and back, into how many messages the payload was cut, and percentiles of single rounds (a
 * dash where they can't be told). Nothing but the headers of System V is used.
 */
#define _GNU_SOURCE
#include "bench.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <time.h>
#include <unistd.h>

enum { LARGEST = 1 << 20 };
enum { THERE, BACK, SEMAPHORES };

/* The head of the segment; two payloads follow. */
struct segment {
    _Alignas(128) atomic_uint last; /* the leader sets it before the last round of a method */
    _Alignas(128) atomic_uint ping;
    _Alignas(128) atomic_uint pong;
    _Alignas(128) char payload[2][LARGEST];
};

/* Of one sample: a clock may be dear in a virtual machine. */
static unsigned sample_rounds = 64;

/* Of an open loop, in nanoseconds; 0: a round begins when the one before has ended. */
static uint64_t interval;

struct game {
    key_t key;
    int leads;
    int semaphores, memory, queue[2];
    struct segment *segment;
    size_t size, piece;
    unsigned number; /* of the round; both sides count */
    int last;        /* the follower's: this was the method's last round */
    char *buffer;    /* what this program owns: every payload is copied into it or out of it */
    struct message_buffer {
        long type;
        char text[];
    } * message;
    void (*round)(struct game *);
};

static void give(struct game *g, int number) { sem_add(g->semaphores, number, 1, 0); }
static void take(struct game *g, int number) { sem_add(g->semaphores, number, -1, 0); }

/* The follower asks once a round, when the leader's turn has come in. */
static void look_for_end(struct game *g) {
    g->last = (int)atomic_load_explicit(&g->segment->last, memory_order_acquire);
}

/* The payload carries the round's number, so that a stale one would be noticed. */
static void stamp(struct game *g) {
    g->buffer[0] = (char)g->number;
    g->buffer[g->size - 1] = (char)g->number;
}

static void check(const struct game *g) {
    if (g->buffer[0] != (char)g->number || g->buffer[g->size - 1] != (char)g->number) {
        fprintf(stderr, "pingpong: round %u brought the payload of another round\n", g->number);
        exit(1);
    }
}

static void await(atomic_uint *word, unsigned value) {
    while (atomic_load_explicit(word, memory_order_acquire) != value)
        __builtin_ia32_pause();
}

static void bare_round(struct game *g) {
    struct segment *s = g->segment;
    if (g->leads) {
        atomic_store_explicit(&s->ping, g->number, memory_order_release);
        await(&s->pong, g->number);
    } else {
        await(&s->ping, g->number);
        look_for_end(g);
        atomic_store_explicit(&s->pong, g->number, memory_order_release);
    }
}

static void semaphore_round(struct game *g) {
    if (g->leads) {
        give(g, THERE);
        take(g, BACK);
    } else {
        take(g, THERE);
        look_for_end(g);
        give(g, BACK);
    }
}

static void put_payload(struct game *g, int way) {
    stamp(g);
    memcpy(g->segment->payload[way], g->buffer, g->size);
    give(g, way);
}

static void get_payload(struct game *g, int way) {
    take(g, way);
    memcpy(g->buffer, g->segment->payload[way], g->size);
    check(g);
}

static void segment_round(struct game *g) {
    if (g->leads) {
        put_payload(g, THERE);
        get_payload(g, BACK);
    } else {
        get_payload(g, THERE);
        look_for_end(g);
        put_payload(g, BACK);
    }
}

static void send_payload(struct game *g, int way) {
    stamp(g);
    for (size_t at = 0; at < g->size; at += g->piece) {
        size_t length = g->size - at < g->piece ? g->size - at : g->piece;
        g->message->type = 1;
        memcpy(g->message->text, g->buffer + at, length);
        while (msgsnd(g->queue[way], g->message, length, 0) != 0)
            if (errno != EINTR)
                die("msgsnd");
    }
}

static void receive_payload(struct game *g, int way) {
    for (size_t at = 0; at < g->size;) {
        ssize_t length = msgrcv(g->queue[way], g->message, g->piece, 0, 0);
        if (length < 0 && errno == EINTR)
            continue;
        if (length < 0)
            die("msgrcv");
        memcpy(g->buffer + at, g->message->text, (size_t)length);
        at += (size_t)length;
    }
    check(g);
}

static void queue_round(struct game *g) {
    if (g->leads) {
        send_payload(g, THERE);
        receive_payload(g, BACK);
    } else {
        receive_payload(g, THERE);
        look_for_end(g);
        send_payload(g, BACK);
    }
}

/* The most that one message holds: the system's limit, or the queue's if that is less. */
static size_t largest_message(int queue) {
    struct msginfo limits;
    struct msqid_ds state;
    if (msgctl(0, IPC_INFO, (struct msqid_ds *)&limits) < 0 || msgctl(queue, IPC_STAT, &state) != 0)
        die("msgctl");
    size_t most = (size_t)limits.msgmax;
    return most < state.msg_qbytes ? most : state.msg_qbytes;
}

static void play(struct game *g, unsigned rounds) {
    for (unsigned i = 0; i < rounds; i++) {
        g->number++;
        g->round(g);
    }
}

static void play_some(void *game, uint64_t rounds) { play(game, (unsigned)rounds); }

/* The median over samples of some rounds each. The other side waits for more. */
static double lead(struct game *g) {
    enum { MOST = 1 << 16 };
    static double sample[MOST];
    atomic_store(&g->segment->last, 0);
    play(g, sample_rounds); /* warms up */
    size_t count = 0;
    uint64_t before = now_ns(), end = before + (uint64_t)(bench_seconds * 1e9);
    while (count < 3 || (count < MOST && before < end)) {
        play(g, sample_rounds);
        uint64_t after = now_ns();
        sample[count++] = (double)(after - before) / sample_rounds;
        before = after;
    }
    return median(sample, count);
}

/* Single rounds, each from when it was due; prints their median, and their percentiles. */
static void lead_at_a_rate(struct game *g, const char *method, size_t pieces) {
    enum { MOST = 1 << 17 };
    static double sample[MOST];
    atomic_store(&g->segment->last, 0);
    play(g, sample_rounds); /* warms up */
    size_t count = 0;
    uint64_t due = now_ns(), end = due + (uint64_t)(bench_seconds * 1e9);
    for (; count < 3 || (count < MOST && due < end); due += interval) {
        while (now_ns() < due)
            __builtin_ia32_pause();
        play(g, 1);
        sample[count++] = (double)(now_ns() - due);
    }
    printf("%s %zu %.0f %zu", method, g->size, median(sample, count), pieces);
    print_percentiles(sample, count);
}

static void let_go(struct game *g) {
    atomic_store(&g->segment->last, 1);
    play(g, 1);
}

static void follow(struct game *g) {
    do
        play(g, 1);
    while (!g->last);
}

static void choose(struct game *g, const char *method, const char *size) {
    static const struct {
        const char *name;
        void (*round)(struct game *);
    } methods[] = {{"bare", bare_round},
                   {"semaphore", semaphore_round},
                   {"segment", segment_round},
                   {"queue", queue_round}};
    g->round = NULL;
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (strcmp(method, methods[i].name) == 0)
            g->round = methods[i].round;
    g->size = strtoul(size, NULL, 10);
    if (g->round == NULL || g->size < 1 || g->size > LARGEST) {
        fprintf(stderr, "pingpong: \"%s %s\" is no method and size (1 to %d)\n", method, size,
                LARGEST);
        exit(2);
    }
    size_t most = largest_message(g->queue[0]);
    g->piece = g->size < most ? g->size : most;
}

static void measure(struct game *g, const char *method) {
    if (!g->leads) {
        follow(g);
        return;
    }
    size_t pieces = g->round == queue_round ? (g->size + g->piece - 1) / g->piece : 1;
    if (interval > 0) {
        lead_at_a_rate(g, method, pieces);
    } else {
        printf("%s %zu %.0f %zu", method, g->size, lead(g), pieces);
        print_tail(play_some, g);
    }
    printf("\n");
    let_go(g);
    fflush(stdout);
}

/* The other process makes the set just before its segment and queues: wait for each a little. */
static int patiently(int (*get)(const struct game *, int), const struct game *g, int argument) {
    for (int attempt = 0;; attempt++) {
        int id = get(g, argument);
        if (id >= 0)
            return id;
        if (errno != ENOENT || attempt == 2000)
            die("the IPC objects of the other process");
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
}

static int flags(const struct game *g) { return g->leads ? IPC_CREAT | IPC_EXCL | 0600 : 0; }

static int get_memory(const struct game *g, int argument) {
    (void)argument;
    return shmget(g->key, sizeof *g->segment, flags(g));
}

static int get_queue(const struct game *g, int way) { return msgget(g->key + way, flags(g)); }

static void set_up(struct game *g) {
    g->semaphores = semget(g->key, SEMAPHORES, IPC_CREAT | IPC_EXCL | 0600);
    g->leads = g->semaphores >= 0;
    if (!g->leads && errno == EEXIST)
        g->semaphores = semget(g->key, SEMAPHORES, 0);
    if (g->semaphores < 0)
        die("semget");
    g->memory = patiently(get_memory, g, 0);
    for (int way = THERE; way <= BACK; way++)
        g->queue[way] = patiently(get_queue, g, way);
    g->segment = shmat(g->memory, NULL, 0);
    if (g->segment == (void *)-1)
        die("shmat");
    /* Both equally far into a page: on some processors memcpy is slow where the target is a little
     * further. */
    enum { PAGE = 4096 };
    char *buffer = aligned_alloc(PAGE, PAGE + LARGEST);
    g->message = aligned_alloc(PAGE, PAGE + LARGEST);
    if (buffer == NULL || g->message == NULL)
        die("aligned_alloc");
    g->buffer = memset(buffer + offsetof(struct message_buffer, text), 0, LARGEST);
}

static void meet(struct game *g) {
    if (g->leads) {
        take(g, BACK);
        give(g, THERE);
    } else {
        give(g, BACK);
        take(g, THERE);
    }
}

/* The leader removes everything, once the other one needs nothing any more. */
static void tear_down(struct game *g) {
    if (!g->leads) {
        give(g, BACK);
        return;
    }
    take(g, BACK);
    remove_semaphores(g->semaphores);
    for (int way = THERE; way <= BACK; way++)
        remove_queue(g->queue[way]);
    if (shmctl(g->memory, IPC_RMID, NULL) != 0)
        die("shmctl IPC_RMID");
}

int main(int argc, char **argv) {
    struct game game = {.key = 0x50494e47};
    int option;
    while ((option = getopt(argc, argv, "i:k:r:t:")) != -1) {
        if (option == 'k')
            game.key = (key_t)strtoul(optarg, NULL, 0);
        else if (option == 'i')
            interval = strtoull(optarg, NULL, 10);
        else if (option == 'r')
            sample_rounds = (unsigned)strtoul(optarg, NULL, 10);
        else if (option == 't')
            bench_seconds = atof(optarg);
        else
            return 2;
    }
    if (sample_rounds == 0 || optind == argc || (argc - optind) % 2 != 0) {
        fprintf(
            stderr,
            "pingpong: pairs of METHOD SIZE are needed, e.g. pingpong semaphore 8 queue 1024\n");
        return 2;
    }
    set_up(&game);
    meet(&game);
    for (int i = optind; i < argc; i += 2) {
        choose(&game, argv[i], argv[i + 1]);
        measure(&game, argv[i]);
    }
    tear_down(&game);
    return 0;
}
