/*
 * Signal handlers in the middle of a wait: in the kernel, the wait is over before they run. They
 * may use what was waited for, jump away, or end the thread.
 */
#include "tests.h"
#include <pthread.h>
#include <setjmp.h>

static int set, queue;
static volatile sig_atomic_t seen; /* what the handler found */
static sigjmp_buf back;
static void (*in_handler)(void);

static void handler(int number) {
    (void)number;
    int before = errno;
    in_handler();
    errno = before;
}

/* A signal that comes while the next call waits, sent by a child that sees this process asleep. A
 * timer could go off before the call where processors are busy. */
static void interrupted_by(void (*act)(void)) {
    struct sigaction action = {.sa_handler = handler};
    pid_t waiting = getpid();
    in_handler = act;
    OK(sigaction(SIGALRM, &action, NULL));
    if (OK(fork()) == 0) {
        sleeps(waiting);
        OK(kill(waiting, SIGALRM));
        _exit(0);
    }
}

static int add(int by) {
    struct sembuf operation = {0, (short)by, 0};
    return semop(set, &operation, 1);
}

static int value(void) { return (int)OK(semctl(set, 0, GETVAL)); }

static int waiters(void) { return (int)OK(semctl(set, 0, GETNCNT)); }

struct message {
    long type;
    char text[8];
};

static int sent(long type) {
    struct message m = {type, "message"};
    return msgsnd(queue, &m, sizeof m.text, IPC_NOWAIT);
}

static long received(long type, int flags) {
    struct message m;
    return msgrcv(queue, &m, sizeof m.text, type, flags);
}

static void begin(void) {
    set = (int)OK(semget(IPC_PRIVATE, 1, 0600));
    queue = (int)OK(msgget(IPC_PRIVATE, 0600));
}

static void end(void) {
    OK(semctl(set, 0, IPC_RMID));
    OK(msgctl(queue, IPC_RMID, NULL));
}

static void raise_it(void) { OK(add(1)); }

static void take_it(void) {
    struct sembuf operation = {0, -1, IPC_NOWAIT};
    OK(add(1));
    seen = semop(set, &operation, 1) == 0;
}

static void count(void) { seen = waiters(); }

static void set_it(void) { OK(semctl(set, 0, SETVAL, 1)); }

static void remove_set(void) { OK(semctl(set, 0, IPC_RMID)); }

static void a_semaphore_raised_in_the_handler_stays_raised(void) {
    begin();
    interrupted_by(raise_it);
    FAILS(add(-1), EINTR);
    EQUAL(value(), 1);
    OK(semctl(set, 0, SETVAL, 0));
    interrupted_by(set_it);
    FAILS(add(-1), EINTR);
    EQUAL(value(), 1);
    end();
}

static void the_handler_takes_what_it_raises(void) {
    begin();
    interrupted_by(take_it);
    FAILS(add(-1), EINTR);
    EQUAL(seen, 1);
    EQUAL(value(), 0);
    end();
}

static void nobody_waits_while_the_handler_runs(void) {
    begin();
    seen = -1;
    interrupted_by(count);
    FAILS(add(-1), EINTR);
    EQUAL(seen, 0);
    end();
}

static volatile pid_t forked;

static void fork_it(void) { forked = (pid_t)OK(fork()); }

/* The child works while its parent is still in the handler. */
static void fork_it_and_stay(void) {
    fork_it();
    if (forked != 0)
        nap_ms(50);
}

/* The wait is over for both, and its place in the queue is the parent's. */
static void a_child_of_the_handler_waits_no_more(void) {
    begin();
    for (int round = 0; round < 6; round++) {
        interrupted_by(round < 4 ? fork_it : fork_it_and_stay);
        if (round % 2 == 0)
            FAILS(add(-1), EINTR);
        else
            FAILS(received(0, 0), EINTR);
        /* The child goes on first, last, or somewhere between. */
        nap_ms(forked == 0 ? round % 4 * 3 : 3);
        OK(add(1));
        OK(sent(1));
        if (forked == 0)
            _exit(0);
        joined(forked, 0);
        EQUAL(value(), 2);
        EQUAL(waiters(), 0);
        for (int i = 0; i < 2; i++) {
            OK(add(-1));
            EQUAL(received(0, IPC_NOWAIT), sizeof(((struct message *)0)->text));
        }
    }
    end();
}

static void removing_the_set_in_the_handler_is_too_late(void) {
    begin();
    interrupted_by(remove_set);
    FAILS(add(-1), EINTR);
    OK(msgctl(queue, IPC_RMID, NULL));
}

static void send_it(void) { OK(sent(1)); }

static void pass_it(void) {
    OK(sent(1));
    seen = (int)received(0, IPC_NOWAIT);
}

static void a_message_sent_in_the_handler_stays(void) {
    begin();
    interrupted_by(send_it);
    FAILS(received(0, 0), EINTR);
    EQUAL(received(0, IPC_NOWAIT), 8);
    interrupted_by(pass_it);
    FAILS(received(0, 0), EINTR);
    EQUAL(seen, 8);
    FAILS(received(0, IPC_NOWAIT), ENOMSG);
    end();
}

static void jump(void) { siglongjmp(back, 1); }

static void who_jumped_away_waits_no_more(void) {
    begin();
    for (int i = 0; i < 5; i++) {
        if (sigsetjmp(back, 1) == 0) {
            interrupted_by(jump);
            add(-1);
            CHECK(!"semop has returned");
        }
        EQUAL(waiters(), 0);
        OK(add(1));
        EQUAL(value(), 1);
        OK(add(-1));
    }
    if (sigsetjmp(back, 1) == 0) {
        interrupted_by(jump);
        received(0, 0);
        CHECK(!"msgrcv has returned");
    }
    OK(sent(3));
    EQUAL(received(0, IPC_NOWAIT), 8);
    end();
}

/* Somebody else raises the semaphore and sends a message after this thread has jumped out of its
 * wait, and before it makes a call again. */
static void who_jumped_away_is_given_nothing(void) {
    struct sembuf take_two[] = {{1, -1, SEM_UNDO}, {0, -1, 0}};
    begin();
    OK(semctl(set, 0, IPC_RMID));
    set = (int)OK(semget(IPC_PRIVATE, 2, 0600));
    for (int round = 0; round < 3; round++) {
        int ends[2];
        char byte;
        OK(semctl(set, 1, SETVAL, 1));
        OK(pipe(ends));
        pid_t other = (pid_t)OK(fork());
        if (other == 0) {
            EQUAL(read(ends[0], &byte, 1), 1);
            if (round == 2)
                OK(sent(1));
            else
                OK(add(1));
            _exit(0);
        }
        if (sigsetjmp(back, 1) == 0) {
            interrupted_by(jump);
            if (round == 0)
                add(-1);
            else if (round == 1)
                semop(set, take_two, 2);
            else
                received(0, 0);
        }
        EQUAL(write(ends[1], "", 1), 1);
        joined(other, 0);
        if (round == 2) {
            struct msqid_ds state;
            OK(msgctl(queue, IPC_STAT, &state));
            EQUAL(state.msg_qnum, 1);
            EQUAL(received(0, IPC_NOWAIT), sizeof(((struct message *)0)->text));
            OK(msgctl(queue, IPC_STAT, &state));
            EQUAL(state.msg_qnum, 0);
            EQUAL(state.__msg_cbytes, 0);
        } else {
            EQUAL(value(), 1);
            EQUAL(OK(semctl(set, 1, GETVAL)), 1);
            OK(add(-1));
        }
        OK(close(ends[0]));
        OK(close(ends[1]));
    }
    end();
}

static void leave(void) { pthread_exit(NULL); }

static void *take_for_ever(void *unused) {
    (void)unused;
    add(-1);
    return NULL;
}

static void *receive_for_ever(void *unused) {
    (void)unused;
    received(5, 0);
    return NULL;
}

static void gone_while_it_waits(void *(*wait)(void *)) {
    struct sigaction action = {.sa_handler = handler};
    pthread_t thread;
    in_handler = leave;
    OK(sigaction(SIGUSR1, &action, NULL));
    EQUAL(pthread_create(&thread, NULL, wait, NULL), 0);
    usleep(50000);
    EQUAL(pthread_kill(thread, SIGUSR1), 0);
    EQUAL(pthread_join(thread, NULL), 0);
}

static void a_thread_that_ended_waits_no_more(void) {
    begin();
    gone_while_it_waits(take_for_ever);
    EQUAL(waiters(), 0);
    OK(add(1));
    EQUAL(value(), 1);
    gone_while_it_waits(receive_for_ever);
    OK(sent(5));
    EQUAL(received(5, IPC_NOWAIT), 8);
    end();
}

static void let_signals_in(void) {
    sigset_t none;
    sigemptyset(&none);
    pthread_sigmask(SIG_SETMASK, &none, NULL);
}

static void *takes(void *unused) {
    let_signals_in();
    return take_for_ever(unused);
}

static void *receives(void *unused) {
    let_signals_in();
    return receive_for_ever(unused);
}

static void *looks(void *unused) {
    let_signals_in();
    for (int i = 0; i < 1000000; i++) {
        value();
        received(5, IPC_NOWAIT);
    }
    return unused;
}

/* The signal hits it on its way into the wait, or in the midst of a call that does not wait. */
static void a_thread_ends_at_any_time(void) {
    static void *(*const all[])(void *) = {takes, receives, looks};
    struct sigaction action = {.sa_handler = handler};
    sigset_t hit, before;
    pthread_t thread;
    begin();
    in_handler = leave;
    OK(sigaction(SIGUSR1, &action, NULL));
    sigemptyset(&hit);
    sigaddset(&hit, SIGUSR1);
    EQUAL(pthread_sigmask(SIG_BLOCK, &hit, &before), 0);
    for (int round = 0; round < 300; round++) {
        EQUAL(pthread_create(&thread, NULL, all[round % 3], NULL), 0);
        usleep(rand() % 200);
        EQUAL(pthread_kill(thread, SIGUSR1), 0);
        EQUAL(pthread_join(thread, NULL), 0);
        EQUAL(waiters(), 0);
    }
    EQUAL(pthread_sigmask(SIG_SETMASK, &before, NULL), 0);
    OK(add(1));
    EQUAL(value(), 1);
    OK(sent(5));
    EQUAL(received(5, IPC_NOWAIT), 8);
    end();
}

TESTS({"handlers/a_semaphore_raised_in_the_handler_stays_raised",
       a_semaphore_raised_in_the_handler_stays_raised},
      {"handlers/the_handler_takes_what_it_raises", the_handler_takes_what_it_raises},
      {"handlers/nobody_waits_while_the_handler_runs", nobody_waits_while_the_handler_runs},
      {"handlers/a_child_of_the_handler_waits_no_more", a_child_of_the_handler_waits_no_more},
      {"handlers/removing_the_set_in_the_handler_is_too_late",
       removing_the_set_in_the_handler_is_too_late},
      {"handlers/a_message_sent_in_the_handler_stays", a_message_sent_in_the_handler_stays},
      {"handlers/who_jumped_away_waits_no_more", who_jumped_away_waits_no_more},
      {"handlers/who_jumped_away_is_given_nothing", who_jumped_away_is_given_nothing},
      {"handlers/a_thread_that_ended_waits_no_more", a_thread_that_ended_waits_no_more},
      {"handlers/a_thread_ends_at_any_time", a_thread_ends_at_any_time})
