/* channel: one measurement of one channel a run.
 *
 *   channel [-t SECONDS] [-u UID] CHANNEL WORK SIZE
 *   channel -l                             the channels, and the versions of what they are made
 * with
 *
 * WORK is
 *   alone      one process sends a message to itself and receives it
 *   handover   there and back between two processes
 *   stream     one process sends as fast as it can, another receives
 *   senders    four processes send to one
 *   bandwidth  as stream, in MB/s
 *
 * Messages that are too large for a channel are sent in pieces. Prints "VALUE UNIT", handover with
 * percentiles. Ends with status 77 where the channel can't be had.
 */
#define _GNU_SOURCE
#include "../bench.h"
#include "channel.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MISSING = 77 };

static struct shared {
    _Alignas(128) atomic_uint arrived;
    _Alignas(128) atomic_uint last; /* set before the last hand-over */
    char board[PROCESSES][BOARD_SIZE];
} * shared;

static const struct channel *channel;
static int processes;
static size_t piece; /* what one message holds */
static unsigned met;

void nothing(void) {}
void nothing_of(int me) { (void)me; }
int process_count(void) { return processes; }
char *board_of(int process) { return shared->board[process]; }

void meet(void) {
    met += (unsigned)processes;
    atomic_fetch_add(&shared->arrived, 1);
    while (atomic_load(&shared->arrived) < met)
        sched_yield();
}

void idle(unsigned *times) {
    enum { SPINS = 1000 };
    if (++*times < SPINS)
        __builtin_ia32_pause();
    else
        sched_yield();
}

void missing(const char *why) {
    fprintf(stderr, "missing: %s\n", why);
    exit(MISSING);
}

void broken(const char *what, const char *why) {
    fprintf(stderr, "channel: %s: %s\n", what, why);
    exit(1);
}

/* A message as the program has it. Its ends carry its number, so that a stale or torn one would be
 * noticed; the middle of the last word of a stream says that it is the last. */
struct payload {
    size_t size;
    char *text;
};

static struct payload payload_of(size_t size) {
    struct payload m = {size, malloc(size)};
    if (m.text == NULL)
        die("malloc");
    memset(m.text, 0, size);
    return m;
}

static void send_it(int to, struct payload *m, uint64_t number, int last) {
    m->text[0] = m->text[m->size - 1] = (char)number;
    m->text[1] = (char)last;
    for (size_t at = 0; at < m->size; at += piece)
        channel->send(to, m->text + at, m->size - at < piece ? m->size - at : piece);
}

/* Whether it was the last one. */
static int receive_it(struct payload *m) {
    for (size_t at = 0; at < m->size; at += piece)
        channel->receive(m->text + at, m->size - at < piece ? m->size - at : piece);
    if (m->text[0] != m->text[m->size - 1])
        broken(channel->name, "a message came torn");
    return m->text[1];
}

static void expect(const struct payload *m, uint64_t number) {
    if (m->text[0] != (char)number)
        broken(channel->name, "a message came out of its turn");
}

struct side {
    struct payload message;
    uint64_t number;
};

static void to_itself(void *arg, uint64_t n) {
    struct side *s = arg;
    for (uint64_t i = 0; i < n; i++) {
        send_it(0, &s->message, ++s->number, 0);
        receive_it(&s->message);
        expect(&s->message, s->number);
    }
}

static void alone(int me, size_t size) {
    (void)me;
    struct side s = {.message = payload_of(size)};
    report(median_ns(to_itself, &s), "ns");
}

static void there_and_back(void *arg, uint64_t n) {
    struct side *s = arg;
    for (uint64_t i = 0; i < n; i++) {
        send_it(1, &s->message, ++s->number, 0);
        receive_it(&s->message);
        expect(&s->message, s->number);
    }
}

static void handover(int me, size_t size) {
    struct side s = {.message = payload_of(size)};
    if (me == 0) {
        printf("%.4g ns", median_ns(there_and_back, &s));
        print_tail(there_and_back, &s);
        printf("\n");
        atomic_store(&shared->last, 1);
        there_and_back(&s, 1);
        return;
    }
    for (int last = 0; !last;) {
        receive_it(&s.message);
        expect(&s.message, ++s.number);
        last = (int)atomic_load_explicit(&shared->last, memory_order_relaxed);
        send_it(0, &s.message, s.number, 0);
    }
}

static void send_all(struct payload *m) {
    /* A large message takes longer than a reading of the clock. */
    const uint64_t look = m->size < 65536 ? 64 : 1;
    uint64_t end = now_ns() + (uint64_t)(bench_seconds * 1e9);
    int last = 0;
    for (uint64_t number = 1; !last; number++) {
        last = number > 1 && number % look == 0 && now_ns() >= end;
        send_it(0, m, number, last);
    }
}

/* Nanoseconds a message; the clock starts when the first has come. */
static double receive_all(struct payload *m) {
    uint64_t received = 0, began = 0;
    for (int senders = processes - 1; senders > 0;) {
        senders -= receive_it(m);
        if (processes == 2)
            expect(m, received + 1);
        if (received++ == 0)
            began = now_ns();
    }
    return (double)(now_ns() - began) / (double)(received - 1);
}

static void stream(int me, size_t size) {
    struct payload m = payload_of(size);
    if (me == 0)
        report(receive_all(&m), "ns");
    else
        send_all(&m);
}

static void bandwidth(int me, size_t size) {
    struct payload m = payload_of(size);
    if (me == 0)
        report((double)size * 1e3 / receive_all(&m), "MB/s");
    else
        send_all(&m);
}

static const struct work {
    const char *name;
    int processes;
    void (*run)(int me, size_t size);
} works[] = {{"alone", 1, alone},
             {"handover", 2, handover},
             {"stream", 2, stream},
             {"senders", PROCESSES, stream},
             {"bandwidth", 2, bandwidth}};

/* Whoever waits for a process that failed would wait for good. */
static void on_child(int number, siginfo_t *what, void *context) {
    (void)number, (void)context;
    if (what->si_code != CLD_EXITED || what->si_status != 0) {
        static const char text[] = "channel: another process failed\n";
        ssize_t written = write(STDERR_FILENO, text, sizeof text - 1);
        _exit(written < 0 ? 2 : 1);
    }
}

/* The part of a process. */
struct part {
    const struct work *work;
    int me;
    size_t size;
};

static void play(void *arg) {
    const struct part *p = arg;
    /* Who receives has a processor of its own, where there are two. */
    int others = processors() - 1;
    pin(p->me > 0 && others > 0 ? 1 + (p->me - 1) % others : 0);
    channel->open(p->me);
    meet();
    p->work->run(p->me, p->size);
    meet();
    channel->close();
}

static void measure(const struct work *work, size_t size) {
    pid_t pid[PROCESSES];
    struct part part = {.work = work, .size = size};
    processes = work->processes;
    if (channel->one_sender && processes > 2)
        missing("an inbox has one sender");
    struct sigaction watch = {.sa_sigaction = on_child, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigaction(SIGCHLD, &watch, NULL);
    shared = shared_memory(sizeof *shared);
    piece = channel->make(processes, size);
    for (part.me = 1; part.me < processes; part.me++)
        pid[part.me] = child(play, &part);
    part.me = 0;
    play(&part);
    for (int i = 1; i < processes; i++)
        join(pid[i]);
    channel->remove();
}

static void list(void) {
    for (int i = 0; channels[i] != NULL; i++)
        printf("%s%s%s\n", channels[i]->name, channels[i]->version ? " " : "",
               channels[i]->version ? channels[i]->version : "");
}

static const struct work *find_work(const char *name) {
    for (size_t i = 0; i < sizeof works / sizeof *works; i++)
        if (strcmp(name, works[i].name) == 0)
            return &works[i];
    return NULL;
}

static const struct channel *find_channel(const char *name) {
    int i = 0;
    while (channels[i] != NULL && strcmp(name, channels[i]->name) != 0)
        i++;
    return channels[i];
}

int main(int argc, char **argv) {
    int first = options(argc, argv, list);
    if (first < 0)
        return 2;
    const struct work *work = argc - first == 3 ? find_work(argv[first + 1]) : NULL;
    size_t size = work != NULL ? strtoul(argv[first + 2], NULL, 10) : 0;
    channel = work != NULL ? find_channel(argv[first]) : NULL;
    if (channel == NULL || size < 8) {
        fprintf(stderr, "channel: CHANNEL, WORK and SIZE (8 or more) are needed, e.g. pipe "
                        "handover 64; channel -l lists the channels\n");
        return 2;
    }
    measure(work, size);
    return 0;
}
