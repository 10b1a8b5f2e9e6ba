/* A pool that is taken away from the machine while everything is done in it, by System V only.
 *
 *   gone driver ADDRESS    the kernel removes the device, which vshmem.ko has, and finds it again
 *   gone memory ADDRESS    the device, which has no driver, answers no more, as if it were pulled
 *                          out, and then again
 *
 * Prints "ok      WHAT" or "FAILED  WHAT" for each check. Needs root.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { KEY = 0x60e, SIZE = 3000, LIMIT = 60 };

struct message {
    long type;
    char text[SIZE];
};

static struct { int set, queue, full, flow, segment; } ids;
static const char *address;
static bool with_driver;
/* What the children tell the parent, who is no member any more either. */
static volatile int *started;

static void check(bool good, const char *what) {
    printf("%s%s\n", good ? "ok      " : "FAILED  ", what);
}

static int must(long result, const char *what) {
    if (result < 0) {
        perror(what);
        exit(2);
    }
    return (int)result;
}

static int operate(int number, int by, int flags) {
    struct sembuf sop = {
        .sem_num = (unsigned short)number, .sem_op = (short)by, .sem_flg = (short)flags};
    return semop(ids.set, &sop, 1);
}

static int send_bytes(int queue, long type, int size, int flags) {
    struct message message = {.type = type};
    memset(message.text, 0x5a, sizeof(message.text));
    return msgsnd(queue, &message, (size_t)size, flags);
}

static void make(void) {
    ids.set = must(semget(KEY, 3, IPC_CREAT | 0600), "semget");
    ids.queue = must(msgget(KEY, IPC_CREAT | 0600), "msgget");
    ids.full = must(msgget(KEY + 1, IPC_CREAT | 0600), "msgget");
    ids.flow = must(msgget(KEY + 2, IPC_CREAT | 0600), "msgget");
    ids.segment = must(shmget(KEY, 8192, IPC_CREAT | 0600), "shmget");
    while (send_bytes(ids.full, 1, SIZE, IPC_NOWAIT) == 0)
        ;
}

/* What children do: each comes back when its pool is gone, with the errno that it got; 0 is no
 * good. */

static int waits_for_a_semaphore(void) { return operate(0, -1, 0) < 0 ? errno : 0; }

static int waits_for_several_with_undo(void) {
    struct sembuf sops[] = {{1, -1, SEM_UNDO}, {2, -7, 0}};
    struct timespec timeout = {LIMIT, 0};
    return semtimedop(ids.set, sops, 2, &timeout) < 0 ? errno : 0;
}

static int waits_for_a_message(void) {
    struct message message;
    return msgrcv(ids.queue, &message, SIZE, 77, 0) < 0 ? errno : 0;
}

static int waits_for_room(void) { return send_bytes(ids.full, 1, SIZE, 0) < 0 ? errno : 0; }

/* Sends to itself and receives; a text must be what was sent. */
static int sends_and_receives(void) {
    struct message message;
    long mine = getpid();
    for (;;) {
        if (send_bytes(ids.flow, mine, SIZE, 0) < 0)
            return errno;
        ssize_t size = msgrcv(ids.flow, &message, SIZE, mine, 0);
        if (size < 0)
            return errno;
        for (int i = 0; i < size; i++)
            if (message.text[i] != 0x5a)
                return size == SIZE ? 1001 : 1002;
    }
}

static int takes_and_gives(void) {
    while (operate(2, 1, SEM_UNDO) == 0 && operate(2, -1, SEM_UNDO) == 0)
        ;
    return errno;
}

static int makes_and_removes(void) {
    for (;;) {
        int id = semget(IPC_PRIVATE, 5, 0600);
        if (id < 0 || semctl(id, 0, IPC_RMID) < 0)
            return errno;
        id = shmget(IPC_PRIVATE, 100000, 0600);
        if (id < 0)
            return errno;
        void *at = shmat(id, NULL, 0);
        if (at == (void *)-1 || shmdt(at) < 0 || shmctl(id, IPC_RMID, NULL) < 0)
            return errno;
    }
}

static int forks(void) {
    for (;;) {
        pid_t pid = fork();
        if (pid < 0)
            return 1000;
        if (pid == 0) {
            int value = semctl(ids.set, 0, GETVAL);
            _exit(value < 0 ? errno : 0);
        }
        int status;
        waitpid(pid, &status, 0);
        if (!WIFEXITED(status))
            return 1001;
        if (WEXITSTATUS(status) != 0)
            return WEXITSTATUS(status);
    }
}

/* A handler calls while its thread waits. */
static void on_alarm(int number) {
    (void)number;
    int saved = errno;
    (void)semctl(ids.set, 0, GETVAL);
    errno = saved;
}

static int is_interrupted(void) {
    struct sigaction action = {.sa_handler = on_alarm};
    sigaction(SIGPROF, &action, NULL);
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGPROF};
    timer_create(CLOCK_MONOTONIC, &event, &timer);
    struct itimerspec often = {{0, 3000000}, {0, 3000000}};
    timer_settime(timer, 0, &often, NULL);
    while (operate(0, -1, 0) < 0 && errno == EINTR)
        ;
    return errno;
}

struct child {
    const char *what;
    int (*does)(void);
    pid_t pid;
};

static struct child children[] = {
    {"who waits for a semaphore", waits_for_a_semaphore, 0},
    {"who waits for several, with SEM_UNDO", waits_for_several_with_undo, 0},
    {"who waits for a message", waits_for_a_message, 0},
    {"who waits for room in a queue", waits_for_room, 0},
    {"who sends and receives", sends_and_receives, 0},
    {"who takes and gives semaphores", takes_and_gives, 0},
    {"who makes and removes IPC objects", makes_and_removes, 0},
    {"who forks", forks, 0},
    {"who is interrupted and calls in the handler", is_interrupted, 0},
};
enum { CHILDREN = sizeof(children) / sizeof(children[0]) };

static void start(struct child *child) {
    fflush(stdout);
    child->pid = must(fork(), "fork");
    if (child->pid)
        return;
    alarm(LIMIT);
    __atomic_fetch_add(started, 1, __ATOMIC_SEQ_CST);
    int result = child->does();
    _exit(result == EIDRM ? 0 : result > 255 ? 255 : result);
}

static void judge(struct child *child) {
    char what[200];
    int status;
    waitpid(child->pid, &status, 0);
    snprintf(what, sizeof(what), "%s is told EIDRM", child->what);
    check(WIFEXITED(status) && WEXITSTATUS(status) == 0, what);
    if (WIFSIGNALED(status))
        printf("        killed by signal %d\n", WTERMSIG(status));
    else if (WEXITSTATUS(status))
        printf("        got %s (%d)\n", strerror(WEXITSTATUS(status)), WEXITSTATUS(status));
}

/* Taking away and giving back. */

static void write_to(const char *path, const char *text) {
    int fd = must(open(path, O_WRONLY), path);
    must(write(fd, text, strlen(text)), path);
    close(fd);
}

/* Has the device answer to accesses to its memory, or not: its command register. */
static void answer(bool yes) {
    char path[200];
    unsigned short command;
    snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/config", address);
    int fd = must(open(path, O_RDWR), path);
    must(pread(fd, &command, 2, 4), "pread");
    command = (unsigned short)(yes ? command | 2 : command & ~2);
    must(pwrite(fd, &command, 2, 4), "pwrite");
    close(fd);
}

static void take_away(void) {
    char path[200];
    snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/remove", address);
    if (with_driver)
        write_to(path, "1");
    else
        answer(false);
}

static void give_back(void) {
    if (with_driver)
        write_to("/sys/bus/pci/rescan", "1");
    else
        answer(true);
}

/* In a child: what a call on a pool that is gone says. */
static void check_call(const char *what, long result) {
    char text[200];
    int error = errno;
    snprintf(text, sizeof(text), "%s: EIDRM", what);
    check(result == -1 && error == EIDRM, text);
    if (result != -1 || error != EIDRM)
        printf("        %ld, %s\n", result, strerror(error));
}

static void check_calls(void) {
    struct shmid_ds shm;
    struct semid_ds sem;
    struct msqid_ds msq;
    struct message message;
    unsigned short values[3];
    check_call("semget", semget(KEY, 3, 0));
    check_call("semget, to make it", semget(KEY + 9, 3, IPC_CREAT | 0600));
    check_call("msgget, of a private one", msgget(IPC_PRIVATE, 0600));
    check_call("shmget", shmget(KEY, 8192, IPC_CREAT | 0600));
    check_call("semop", operate(0, 1, 0));
    check_call("semop, IPC_NOWAIT", operate(0, -1, IPC_NOWAIT));
    check_call("semop, SEM_UNDO", operate(0, 1, SEM_UNDO));
    check_call("msgsnd", send_bytes(ids.queue, 1, 10, 0));
    check_call("msgrcv", msgrcv(ids.full, &message, SIZE, 0, IPC_NOWAIT));
    check_call("shmat", (long)shmat(ids.segment, NULL, 0));
    check_call("GETALL", semctl(ids.set, 0, GETALL, values));
    check_call("SETVAL", semctl(ids.set, 0, SETVAL, 1));
    check_call("IPC_STAT of a set", semctl(ids.set, 0, IPC_STAT, &sem));
    check_call("IPC_INFO of sets", semctl(0, 0, IPC_INFO, &sem));
    check_call("IPC_STAT of a queue", msgctl(ids.queue, IPC_STAT, &msq));
    check_call("IPC_RMID of a queue", msgctl(ids.queue, IPC_RMID, NULL));
    check_call("IPC_STAT of a segment", shmctl(ids.segment, IPC_STAT, &shm));
    check_call("SHM_STAT", shmctl(0, SHM_STAT, &shm));
}

/* How a child ends that reads the segment, and then says what it read. */
static int touch(const volatile int *segment) {
    int status;
    fflush(stdout);
    pid_t pid = must(fork(), "fork");
    if (pid == 0)
        _exit(*segment == 0 ? 0 : 1);
    waitpid(pid, &status, 0);
    return WIFSIGNALED(status) ? 1000 + WTERMSIG(status) : WEXITSTATUS(status);
}

static void check_child(const char *what, void (*does)(void)) {
    int status;
    fflush(stdout);
    pid_t pid = must(fork(), "fork");
    if (pid == 0) {
        alarm(LIMIT);
        does();
        exit(0);
    }
    waitpid(pid, &status, 0);
    check(WIFEXITED(status) && WEXITSTATUS(status) == 0, what);
}

static void call_only(void) {
    if (semctl(ids.set, 0, GETVAL) != -1 || errno != EIDRM)
        exit(1);
}

static void execute(void) {
    execl("/bin/true", "true", (char *)NULL);
    exit(1);
}

static void check_what_comes_back(void) {
    int set = -1;
    check_call("semop on a pool that is back, before semget", operate(2, 1, 0));
    for (int i = 0; i < 500 && set < 0; i++) {
        set = semget(KEY, 3, 0);
        usleep(10000);
    }
    check(set == ids.set, "semget finds the set again when the pool is back");
    if (set < 0)
        perror("semget");
    check(operate(2, 1, 0) == 0 && operate(2, -1, 0) == 0, "its semaphores can be used");
    struct message message;
    check(msgrcv(ids.full, &message, SIZE, 0, IPC_NOWAIT) == SIZE && message.text[SIZE - 1] == 0x5a,
          "a message that was in a queue is still there");
    int *segment = shmat(shmget(KEY, 0, 0), NULL, 0);
    check(segment != (void *)-1 && *segment == 4711, "a segment holds what was in it");
    check(semctl(set, 0, IPC_RMID) == 0 && msgctl(ids.full, IPC_RMID, NULL) == 0,
          "all can be removed");
    msgctl(ids.queue, IPC_RMID, NULL);
    msgctl(ids.flow, IPC_RMID, NULL);
    shmctl(ids.segment, IPC_RMID, NULL);
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc != 3)
        return 2;
    with_driver = strcmp(argv[1], "driver") == 0;
    address = argv[2];
    started = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    alarm(3 * LIMIT);
    make();
    int *segment = shmat(ids.segment, NULL, 0);
    *segment = 4711;
    for (int i = 0; i < CHILDREN; i++)
        start(&children[i]);
    while (*started < CHILDREN)
        usleep(10000);
    sleep(2);

    take_away();
    for (int i = 0; i < CHILDREN; i++)
        judge(&children[i]);
    check_calls();
    if (with_driver)
        check(touch(segment) == 1000 + SIGBUS, "who reads what is attached gets SIGBUS");
    else
        check(touch(segment) == 0, "who reads what is attached reads zeros");
    check(shmdt(segment) == 0, "what is attached can be detached");
    check_child("a child can be forked, and ends", call_only);
    check_child("a child can execute a program", execute);

    give_back();
    check_what_comes_back();
    return 0;
}
