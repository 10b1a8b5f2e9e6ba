/*
 * Lies that are told while a call is under way: a segment that goes and comes while it is attached
 * over the program's memory, and waiters that are told to try again without end. What the program
 * has must stay, and a signal must end the wait. Changes the pool by its file, as docs/layout.md
 * says.
 */
#include "pool.h"
#include <sys/prctl.h>
#include <sys/time.h>

#define fail(...) check_failed(__FILE__, __LINE__, __VA_ARGS__)

enum { SLEEPERS = 2, SEGMENTS = 3, PAGE = 4096, WAITING = 1, SIGNALS = 20 };
#define DONE 0x80000000U
#define RETRY 0x7fffU

static void dies_and_lives(void *segment) {
    _Atomic uint32_t *flags = half(entry(SEGMENTS, 128, *(int *)segment) + 28);
    const uint32_t alive = *flags;
    for (unsigned i = 0;; i++) {
        *flags = alive | (i & 1);
        for (volatile unsigned pause = i * 7919 % 200; pause > 0; pause--) {
        }
    }
}

static void is_removed(void *key) {
    for (;;) {
        shmctl(shmget(*(int *)key, 3 * PAGE, IPC_CREAT | 0600), IPC_RMID, NULL);
    }
}

/* A liar, which ends with this process. */
static void (*lie)(void *);

static void lies(void *argument) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    lie(argument);
}

static pid_t liar(void (*how)(void *), void *argument) {
    lie = how;
    return child(lies, argument);
}

/* Attaches over memory of the program's; `find` gives the segment. Of many calls, some fail, and
 * leave what is there. */
static void attach_over(int (*find)(void), void (*how)(void *), void *argument) {
    const pid_t enemy = liar(how, argument);
    int failed = 0;
    int attached = 0;
    const double end = seconds_now() + 3;
    while ((failed < 200 || attached < 200) && seconds_now() < end) {
        char *mine =
            mmap(NULL, 5 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(mine != MAP_FAILED);
        memset(mine, 'm', 5 * PAGE);
        if ((long)shmat(find(), mine + PAGE, SHM_REMAP) == -1) {
            failed++;
            for (int at = 0; at < 5 * PAGE; at += PAGE) {
                EQUAL(mine[at], 'm');
            }
        } else {
            attached++;
            EQUAL(mine[0], 'm');
            EQUAL(mine[PAGE], 0);
            EQUAL(mine[4 * PAGE], 'm');
            OK(shmdt(mine + PAGE));
        }
        munmap(mine, 5 * PAGE);
    }
    killed(enemy);
    CHECK(failed > 0 && attached > 0);
}

static int segment;
static int key = 77;

static int the_segment(void) { return segment; }

static int by_key(void) {
    const int found = shmget(key, 3 * PAGE, 0600);
    return found < 0 ? segment : found;
}

static _Atomic int handled;

static void count(int number) {
    (void)number;
    handled++;
}

static void tries_again(void *status) {
    for (;;) {
        for (uint64_t i = 0; i < 4; i++) {
            const uint64_t record = table(SLEEPERS) + i * 256;
            uint32_t waiting = WAITING;
            if (*half(record) != 0) {
                atomic_compare_exchange_strong(half(record + 8), &waiting, *(uint32_t *)status);
            }
        }
    }
}

static int queue;
static struct {
    long type;
    char text[8000];
} message = {1, ""};

static long receive(void) { return msgrcv(queue, &message, 100, 0, 0); }

static long send(void) { return msgsnd(queue, &message, sizeof message.text, 0); }

/* However often it is told to try again: the first signal ends the call. */
static void interrupt(long (*call)(void), uint32_t status) {
    const pid_t enemy = liar(tries_again, &status);
    handle(SIGALRM, count);
    for (int i = 0; i < SIGNALS; i++) {
        const struct itimerval every = {{0, 50000}, {0, 50000}};
        handled = 0;
        OK(setitimer(ITIMER_REAL, &every, NULL));
        FAILS(call(), EINTR);
        EQUAL(handled, 1);
    }
    const struct itimerval never = {{0, 0}, {0, 0}};
    OK(setitimer(ITIMER_REAL, &never, NULL));
    killed(enemy);
}

int main(void) {
    segment = (int)OK(shmget(IPC_PRIVATE, 3 * PAGE, 0600));
    queue = (int)OK(msgget(IPC_PRIVATE, 0600));
    open_pool();
    attach_over(the_segment, dies_and_lives, &segment);
    attach_over(by_key, is_removed, &key);
    interrupt(receive, DONE | RETRY);
    while (msgsnd(queue, &message, sizeof message.text, IPC_NOWAIT) == 0) {
    }
    interrupt(send, DONE);
    OK(msgctl(queue, IPC_RMID, NULL));
    puts("ok: what is changed while a call is under way takes nothing from the program");
    return 0;
}
