/*
 * A process that is stopped (by SIGSTOP, by a debugger) in the middle of a call: others go on. In
 * the kernel no call can be stopped in the middle, so nothing of this is ever seen there. A library
 * can't but let others wait if it is a call's rare, slow part; then a signal still reaches them.
 */
#include "tests.h"
#include <sys/time.h>

#define ROUNDS 150
/* More than a small queue has room for at once. */
#define MESSAGES 150

struct message {
    long type;
    char text[2000];
};

static pid_t other;
static int set, queue;

static volatile sig_atomic_t rings;

static void let_it_go_on(int number) {
    (void)number;
    int before = errno;
    rings++;
    kill(other, SIGCONT);
    errno = before;
}

/* Lets the other process go on again and again, so many milliseconds from now. 0: does not. */
static void let_it_go_on_after(int milliseconds) {
    struct timeval time = {0, milliseconds * 1000};
    handle(SIGALRM, let_it_go_on);
    OK(setitimer(ITIMER_REAL, &(struct itimerval){time, time}, NULL));
}

/* Calls that a signal may end. */
#define RETRY(call)                                                                                \
    do {                                                                                           \
        while ((call) < 0)                                                                         \
            EQUAL(errno, EINTR);                                                                   \
    } while (0)

/* Sends to itself for ever, and looks whether what comes is what went. */
static void pass_messages(void) {
    static struct message out = {.type = 1}, in;
    for (unsigned n = 0;; n++) {
        size_t length = n * 37 % sizeof out.text;
        memset(out.text, (int)n, length);
        OK(msgsnd(queue, &out, length, 0));
        EQUAL(msgrcv(queue, &in, sizeof in.text, 1, 0), length);
        EQUAL(memcmp(in.text, out.text, length), 0);
    }
}

static void add_and_take(void) {
    struct sembuf up[] = {{0, 1, 0}, {1, 1, 0}}, down[] = {{0, -1, 0}, {1, -1, 0}};
    for (;;) {
        OK(semop(set, up, 2));
        OK(semop(set, down, 2));
    }
}

static void begin(void (*call_for_ever)(void)) {
    if ((other = fork()) == 0)
        call_for_ever();
    /* The first calls are slow ones. */
    usleep(10000);
}

static void stop_at_random(void) {
    int status;
    usleep((useconds_t)(500 + rand() % 800));
    OK(kill(other, SIGSTOP));
    EQUAL(waitpid(other, &status, WUNTRACED), other);
    CHECK(WIFSTOPPED(status));
}

static void finish(void) {
    int status;
    OK(kill(other, SIGCONT));
    usleep(10000);
    /* It has found nothing wrong so far. */
    EQUAL(waitpid(other, &status, WNOHANG), 0);
    OK(kill(other, SIGKILL));
    EQUAL(waitpid(other, &status, 0), other);
}

static void messages_pass_by_one_that_is_stopped(void) {
    struct message m;
    queue = (int)OK(msgget(IPC_PRIVATE, 0600));
    begin(pass_messages);
    for (int round = 0; round < ROUNDS; round++) {
        stop_at_random();
        let_it_go_on_after(500);
        for (int i = 0; i < MESSAGES; i++) {
            m = (struct message){.type = 2, .text = {(char)i}};
            RETRY(msgsnd(queue, &m, 50, 0));
            RETRY(msgrcv(queue, &m, sizeof m.text, 2, 0));
            EQUAL(m.text[0], (char)i);
        }
        FAILS(msgrcv(queue, &m, sizeof m.text, 2, IPC_NOWAIT), ENOMSG);
        let_it_go_on_after(0);
        OK(kill(other, SIGCONT));
    }
    CHECK(rings < ROUNDS / 10);
    finish();
    OK(msgctl(queue, IPC_RMID, NULL));
}

static void a_queue_is_removed_beside_one_that_is_stopped(void) {
    for (int round = 0; round < ROUNDS / 5; round++) {
        int status;
        struct message m = {.type = 2};
        queue = (int)OK(msgget(IPC_PRIVATE, 0600));
        /* Its calls fail once the queue is gone, which ends it. */
        begin(pass_messages);
        stop_at_random();
        let_it_go_on_after(500);
        RETRY(msgsnd(queue, &m, 50, 0));
        OK(msgctl(queue, IPC_RMID, NULL));
        FAILS(msgsnd(queue, &m, 50, 0), EINVAL);
        let_it_go_on_after(0);
        OK(kill(other, SIGKILL));
        EQUAL(waitpid(other, &status, 0), other);
    }
    CHECK(rings < ROUNDS / 10);
}

/* Two semaphores at once are a slow call. */
static void a_signal_reaches_who_waits_for_one_that_is_stopped(void) {
    struct sembuf up[] = {{0, 2, 0}, {1, 2, 0}}, down[] = {{0, -2, 0}, {1, -2, 0}};
    set = (int)OK(semget(IPC_PRIVATE, 2, 0600));
    begin(add_and_take);
    for (int round = 0; round < ROUNDS; round++) {
        stop_at_random();
        let_it_go_on_after(100);
        RETRY(semop(set, up, 2));
        int value = (int)OK(semctl(set, 0, GETVAL));
        CHECK(value == 2 || value == 3);
        RETRY(semop(set, down, 2));
        let_it_go_on_after(0);
        OK(kill(other, SIGCONT));
    }
    finish();
    OK(semctl(set, 0, IPC_RMID));
}

TESTS({"stopped/messages_pass_by_one_that_is_stopped", messages_pass_by_one_that_is_stopped},
      {"stopped/a_queue_is_removed_beside_one_that_is_stopped",
       a_queue_is_removed_beside_one_that_is_stopped},
      {"stopped/a_signal_reaches_who_waits_for_one_that_is_stopped",
       a_signal_reaches_who_waits_for_one_that_is_stopped})
