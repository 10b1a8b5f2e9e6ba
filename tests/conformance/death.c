/*
 * Processes that are killed, or end, and others that know of it by the end of a pipe: in the kernel
 * all of System V is over before files are closed.
 */
#include "tests.h"
#include <pthread.h>
#include <sys/syscall.h>

#define ROUNDS 40
/* A program of this name is the one that `outlives_its_main_thread` executes. */
#define EXECUTED "VSHMEM_TEST_EXECUTED"

static int set, queue, segment;

/* A child that does something and is killed as soon as `ready` says so; returns when its end of a
 * pipe is closed. */
static pid_t gone(void (*act)(void), int (*ready)(void)) {
    int ends[2];
    char byte;
    OK(pipe(ends));
    pid_t pid = fork();
    if (pid == 0) {
        act();
        for (;;)
            pause();
    }
    OK(close(ends[1]));
    while (!ready())
        nap_ms(1);
    OK(kill(pid, SIGKILL));
    EQUAL(read(ends[0], &byte, 1), 0);
    OK(close(ends[0]));
    return pid;
}

static void bury(pid_t pid) {
    int status;
    EQUAL(waitpid(pid, &status, 0), pid);
}

static int add(int by, int flags) {
    struct sembuf operation = {0, (short)by, (short)flags};
    return semop(set, &operation, 1);
}

static int value(void) { return (int)OK(semctl(set, 0, GETVAL)); }

static void take_for_ever(void) { add(-1, 0); }

static int waits(void) { return (int)OK(semctl(set, 0, GETNCNT)); }

static void nothing_is_given_to_the_dead(void) {
    set = (int)OK(semget(IPC_PRIVATE, 1, 0600));
    for (int i = 0; i < ROUNDS; i++) {
        pid_t dead = gone(take_for_ever, waits);
        OK(add(1, 0));
        EQUAL(value(), 1);
        OK(add(-1, IPC_NOWAIT));
        bury(dead);
        EQUAL(value(), 0);
    }
    OK(semctl(set, 0, IPC_RMID));
}

static void take_and_owe(void) { OK(add(-1, SEM_UNDO)); }

static int is_taken(void) { return value() == 0; }

static void what_the_dead_owed_is_paid(void) {
    set = (int)OK(semget(IPC_PRIVATE, 1, 0600));
    OK(semctl(set, 0, SETVAL, 1));
    for (int i = 0; i < ROUNDS; i++) {
        pid_t dead = gone(take_and_owe, is_taken);
        OK(add(-1, IPC_NOWAIT));
        OK(add(1, 0));
        EQUAL(value(), 1);
        bury(dead);
    }
    OK(semctl(set, 0, IPC_RMID));
}

struct message {
    long type;
    char text[8];
};

static void receive_for_ever(void) {
    struct message m;
    msgrcv(queue, &m, sizeof m.text, 0, 0);
}

/* Whether somebody waits for a message nobody tells. */
static int waited(void) {
    nap_ms(2);
    return 1;
}

static void no_message_goes_to_the_dead(void) {
    struct message m = {1, "message"};
    queue = (int)OK(msgget(IPC_PRIVATE, 0600));
    for (int i = 0; i < ROUNDS; i++) {
        pid_t dead = gone(receive_for_ever, waited);
        OK(msgsnd(queue, &m, sizeof m.text, 0));
        EQUAL(msgrcv(queue, &m, sizeof m.text, 0, IPC_NOWAIT), sizeof m.text);
        bury(dead);
    }
    OK(msgctl(queue, IPC_RMID, NULL));
}

static void attach(void) { OK((long)shmat(segment, NULL, 0)); }

static unsigned long attached(void) {
    struct shmid_ds state;
    OK(shmctl(segment, IPC_STAT, &state));
    return state.shm_nattch;
}

static int is_attached(void) { return attached() == 1; }

static void the_dead_have_nothing_attached(void) {
    segment = (int)OK(shmget(IPC_PRIVATE, 4096, 0600));
    for (int i = 0; i < ROUNDS; i++) {
        pid_t dead = gone(attach, is_attached);
        EQUAL(attached(), 0);
        bury(dead);
    }
    OK(shmctl(segment, IPC_RMID, NULL));
}

static int word_to_end;

static void *end_when_told(void *unused) {
    (void)unused;
    char byte;
    ssize_t length = read(word_to_end, &byte, 1);
    _exit(length == 0 ? 7 : 1);
}

/* The main thread ends, another one waits for the end of a pipe. */
static void go_on_without_a_main_thread(int pipe) {
    pthread_t thread;
    word_to_end = pipe;
    EQUAL(pthread_create(&thread, NULL, end_when_told, NULL), 0);
    syscall(SYS_exit, 0);
}

__attribute__((constructor)) static void is_executed(void) {
    const char *pipe = getenv(EXECUTED);
    if (pipe)
        go_on_without_a_main_thread(atoi(pipe));
}

static void outlives_its_main_thread(int executes) {
    int ends[2];
    OK(pipe(ends));
    set = (int)OK(semget(IPC_PRIVATE, 1, 0600));
    OK(semctl(set, 0, SETVAL, 1));
    pid_t pid = fork();
    if (pid == 0) {
        char name[16];
        OK(close(ends[1]));
        take_and_owe();
        if (!executes)
            go_on_without_a_main_thread(ends[0]);
        snprintf(name, sizeof name, "%d", ends[0]);
        OK(setenv(EXECUTED, name, 1));
        OK(execl("/proc/self/exe", "death", (char *)NULL));
    }
    OK(close(ends[0]));
    while (!is_taken())
        nap_ms(1);
    nap_ms(100);
    FAILS(add(-1, IPC_NOWAIT), EAGAIN);
    EQUAL(value(), 0);
    OK(close(ends[1]));
    joined(pid, 7);
    EQUAL(value(), 1);
    OK(semctl(set, 0, IPC_RMID));
}

static void a_process_may_outlive_its_main_thread(void) { outlives_its_main_thread(0); }

static void an_executed_program_may_outlive_its_main_thread(void) { outlives_its_main_thread(1); }

TESTS({"death/nothing_is_given_to_the_dead", nothing_is_given_to_the_dead},
      {"death/what_the_dead_owed_is_paid", what_the_dead_owed_is_paid},
      {"death/no_message_goes_to_the_dead", no_message_goes_to_the_dead},
      {"death/the_dead_have_nothing_attached", the_dead_have_nothing_attached},
      {"death/a_process_may_outlive_its_main_thread", a_process_may_outlive_its_main_thread},
      {"death/an_executed_program_may_outlive_its_main_thread",
       an_executed_program_may_outlive_its_main_thread})
