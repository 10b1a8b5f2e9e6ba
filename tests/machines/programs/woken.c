/* Waiting for another machine, by System V only. KIND is semop, msgrcv or msgsnd.
 *
 *   woken sleep KIND [closed]
 *      A child waits; after a second its sleep is watched for ten. Prints in which function of the
 *      kernel it sleeps, and the milliseconds of processor time that it used in the ten seconds.
 *      closed: it has closed all its descriptors before.
 *
 *   woken take KIND
 *      Waits.
 *
 *   woken give KIND [lost]
 *      Ends such a wait. lost: as another user, who has closed all descriptors, so that nobody can
 *      be rung.
 *
 *   woken ping N, woken pong N
 *      Together: N rounds of a semaphore, a message there and a message back.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { KEY = 0x5eed, THERE = 1, BACK = 2, LARGE = 4096 };

struct message {
    long type;
    char text[LARGE];
};

static void die(const char *what) {
    perror(what);
    exit(1);
}

static int semaphores(int kind) {
    int id = semget(KEY + kind, 1, IPC_CREAT | 0666);
    if (id < 0)
        die("semget");
    return id;
}

static int queue(int kind) {
    int id = msgget(KEY + kind, IPC_CREAT | 0666);
    if (id < 0)
        die("msgget");
    return id;
}

static void add(int id, int delta) {
    struct sembuf sop = {.sem_op = (short)delta};
    if (semop(id, &sop, 1) != 0)
        die("semop");
}

static void send(int id, long type, size_t size) {
    static struct message m;
    m.type = type;
    if (msgsnd(id, &m, size, 0) != 0)
        die("msgsnd");
}

static void receive(int id, long type) {
    static struct message m;
    if (msgrcv(id, &m, sizeof m.text, type, 0) < 0)
        die("msgrcv");
}

/* A queue that has no room for another large message. */
static void fill(int id) {
    struct message m = {.type = THERE};
    while (msgsnd(id, &m, sizeof m.text, IPC_NOWAIT) == 0)
        ;
    if (errno != EAGAIN)
        die("msgsnd");
}

enum { SEMOP, MSGRCV, MSGSND, KINDS };

static int kind_of(const char *name) {
    static const char *const names[KINDS] = {"semop", "msgrcv", "msgsnd"};
    for (int kind = 0; kind < KINDS; kind++)
        if (strcmp(name, names[kind]) == 0)
            return kind;
    fprintf(stderr, "woken: there is no way to wait in %s\n", name);
    exit(2);
}

static void wait_in(int kind) {
    if (kind == SEMOP)
        add(semaphores(kind), -1);
    else if (kind == MSGRCV)
        receive(queue(kind), 0);
    else
        send(queue(kind), THERE, LARGE);
}

static void give(int kind) {
    if (kind == SEMOP)
        add(semaphores(kind), 1);
    else if (kind == MSGRCV)
        send(queue(kind), THERE, 8);
    else
        receive(queue(kind), 0);
}

/* The pool's device can't be opened any more. */
static void lose(int kind) {
    if (kind == SEMOP)
        semaphores(kind);
    else
        queue(kind);
    if (setresuid(65534, 65534, 65534) != 0 || syscall(SYS_close_range, 3, ~0U, 0) != 0)
        die("becoming somebody else");
}

static double used_ms(pid_t pid) {
    clockid_t clock;
    struct timespec used;
    if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &used) != 0)
        die("the child's processor time");
    return (double)used.tv_sec * 1e3 + (double)used.tv_nsec / 1e6;
}

static void print_wchan(pid_t pid) {
    char path[64], text[64] = "";
    snprintf(path, sizeof path, "/proc/%d/wchan", pid);
    FILE *file = fopen(path, "r");
    if (file == NULL || fgets(text, sizeof text, file) == NULL)
        die(path);
    fclose(file);
    printf("%s", text);
}

static void sleep_in(int kind, int closed) {
    if (kind == MSGSND)
        fill(queue(kind));
    pid_t pid = fork();
    if (pid < 0)
        die("fork");
    if (pid == 0) {
        if (closed && syscall(SYS_close_range, 3, ~0U, 0) != 0)
            die("close_range");
        wait_in(kind);
        _exit(0);
    }
    sleep(1);
    double before = used_ms(pid);
    sleep(10);
    print_wchan(pid);
    printf(" %.0f\n", used_ms(pid) - before);
    fflush(stdout);
    int status;
    if (waitpid(pid, &status, 0) != pid || status != 0)
        die("the child");
}

static void play(int pings, long rounds) {
    int sems = semaphores(KINDS), messages = queue(KINDS);
    for (long i = 0; i < rounds; i++) {
        if (pings) {
            add(sems, 1);
            receive(messages, THERE);
            send(messages, BACK, 8);
        } else {
            add(sems, -1);
            send(messages, THERE, 1024);
            receive(messages, BACK);
        }
    }
}

int main(int argc, char **argv) {
    const char *what = argc > 2 ? argv[1] : "";
    if (strcmp(what, "sleep") == 0)
        sleep_in(kind_of(argv[2]), argc > 3);
    else if (strcmp(what, "take") == 0)
        wait_in(kind_of(argv[2]));
    else if (strcmp(what, "give") == 0) {
        if (argc > 3)
            lose(kind_of(argv[2]));
        give(kind_of(argv[2]));
    } else if (strcmp(what, "ping") == 0 || strcmp(what, "pong") == 0)
        play(strcmp(what, "ping") == 0, atol(argv[2]));
    else
        return 2;
    return 0;
}
