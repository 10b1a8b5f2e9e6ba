/*
 * Children: what they inherit, what they count for, and what is left when they are gone. By fork,
 * by raw clone, by vfork, while other threads are inside calls.
 */
#include "capi.h"
#include <pthread.h>
#include <pty.h>
#include <spawn.h>

static int segment, set;
extern char **environ;

static pid_t raw_fork(void) {
#ifdef __x86_64__
    return (pid_t)syscall(SYS_clone, SIGCHLD, 0L, 0L, 0L, 0L);
#else
    return (pid_t)syscall(SYS_clone, (long)SIGCHLD, 0L, 0L, 0L, 0L);
#endif
}

/* The child waits until the parent has looked, then ends as it is told. */
static void child_counts(pid_t (*make)(void), int end_by_signal) {
    pid_t child = make();
    CHECK(child >= 0);
    if (child == 0) {
        /* The first call makes a child known that no fork handler saw. */
        CHECK(semop(set, OP(0, 1, 0), 1) == 0);
        semop(set, OP(1, -1, 0), 1);
        _exit(0);
    }
    CHECK(semop(set, OP(0, -1, 0), 1) == 0);
    CHECK(attachments(segment) == 2);
    if (end_by_signal) {
        CHECK(kill(child, SIGKILL) == 0);
        int status;
        CHECK(waitpid(child, &status, 0) == child && WTERMSIG(status) == SIGKILL);
    } else {
        CHECK(semop(set, OP(1, 1, 0), 1) == 0);
        wait_for_success(child);
    }
    wait_for_attachments(segment, 1);
}

/* A forked child counts from its first moment, without a call of its own. */
static void child_counts_at_once(void) {
    int done[2];
    CHECK(pipe(done) == 0);
    for (int i = 0; i < 20; i++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            char c;
            int status = read(done[0], &c, 1) != 1;
            if (i % 2 == 0)
                exit(status);
            _exit(status);
        }
        CHECK(attachments(segment) == 2);
        CHECK(write(done[1], "x", 1) == 1);
        wait_for_success(child);
        wait_for_attachments(segment, 1);
    }
    close(done[0]);
    close(done[1]);
}

static void exec_detaches(void) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        execl("/bin/sleep", "sleep", "20", (char *)NULL);
        _exit(1);
    }
    wait_for_attachments(segment, 1);
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);

    char *arguments[] = {"true", NULL};
    CHECK(posix_spawn(&child, "/bin/true", NULL, NULL, arguments, environ) == 0);
    wait_for_success(child);
    child = vfork();
    if (child == 0)
        _exit(0);
    wait_for_success(child);
    CHECK(attachments(segment) == 1);
    GIVES(semop(set, OP(0, 0, IPC_NOWAIT), 1), 0);
}

/* A child of a raw clone whose parent, which has called or not, is gone, and counted down, before
 * the child makes itself known. */
static void orphan_counts(int parent_calls) {
    int go[2], done[2];
    CHECK(pipe(go) == 0 && pipe(done) == 0);
    pid_t parent = fork();
    CHECK(parent >= 0);
    if (parent == 0) {
        CHECK(!parent_calls || semop(set, OP(0, 0, IPC_NOWAIT), 1) == 0);
        if (raw_fork() == 0) {
            char c;
            CHECK(read(go[0], &c, 1) == 1 && semop(set, OP(0, 0, IPC_NOWAIT), 1) == 0);
            CHECK(write(done[1], "x", 1) == 1 && close(go[1]) == 0);
            CHECK(read(go[0], &c, 1) == 0);
        }
        _exit(0);
    }
    wait_for_success(parent);
    wait_for_attachments(segment, 1);
    char c;
    CHECK(write(go[1], "x", 1) == 1 && read(done[0], &c, 1) == 1);
    CHECK(attachments(segment) == 2);
    close(go[1]);
    wait_for_attachments(segment, 1);
    close(go[0]);
    close(done[0]);
    close(done[1]);
}

/* A process that was made known before it calls, and its child by a raw clone, which finds the same
 * place: each counts once it has called, whichever comes first. */
static void siblings_take_one_place_each(void) {
    for (int first = 0; first < 2; first++) {
        int done[2], next[2], go[2];
        CHECK(pipe(done) == 0 && pipe(next) == 0 && pipe(go) == 0);
        pid_t child = fork();
        if (child == 0) {
            pid_t its = raw_fork();
            CHECK(its >= 0);
            char c = 'x';
            if ((its == 0) == first)
                CHECK(read(next[0], &c, 1) == 1);
            CHECK(semop(set, OP(1, 1, SEM_UNDO), 1) == 0 && write(done[1], &c, 1) == 1);
            CHECK(read(go[0], &c, 1) == 1);
            if (its != 0)
                wait_for_success(its);
            _exit(0);
        }
        char c[2];
        CHECK(read(done[0], c, 1) == 1 && write(next[1], "x", 1) == 1 && read(done[0], c, 1) == 1);
        CHECK(attachments(segment) == 3);
        GIVES(semctl(set, 1, GETVAL, 0), 2);
        CHECK(write(go[1], "xx", 2) == 2);
        wait_for_success(child);
        wait_for_attachments(segment, 1);
        GIVES(semctl(set, 1, GETVAL, 0), 0);
        for (int i = 0; i < 2; i++)
            close(done[i]), close(next[i]), close(go[i]);
    }
}

static int other_segment;
static char *attached_in_fork;

static void attach_in_fork(void) {
    attached_in_fork = shmat(other_segment, NULL, 0);
    CHECK(attached_in_fork != (void *)-1);
}

static int attaches_in_fork;

static void in_fork(void) {
    if (attaches_in_fork)
        attach_in_fork();
}

/* In the middle of a fork somebody attaches: here a fork handler that runs after the library's own,
 * as a signal's might. The child inherits it, and counts. */
static void a_handler_attaches_in_a_fork(void) {
    other_segment = shmget(IPC_PRIVATE, 4096, 0600);
    CHECK(other_segment >= 0);
    attaches_in_fork = 1;
    int go[2];
    CHECK(pipe(go) == 0);
    pid_t child = fork();
    attaches_in_fork = 0;
    if (child == 0) {
        char c;
        CHECK(read(go[0], &c, 1) == 1);
        CHECK(shmdt(attached_in_fork) == 0);
        _exit(0);
    }
    CHECK(attachments(other_segment) == 2 && attachments(segment) == 2);
    CHECK(write(go[1], "x", 1) == 1);
    wait_for_success(child);
    wait_for_attachments(other_segment, 1);
    wait_for_attachments(segment, 1);
    GIVES(shmdt(attached_in_fork), 0);
    GIVES(shmctl(other_segment, IPC_RMID, NULL), 0);
    close(go[0]);
    close(go[1]);
}

/* Handlers before a fork run in the reverse order: what is registered before the library is comes
 * after it. */
static void before_the_library(int argc, char **argv, char **envp) {
    (void)argc, (void)argv, (void)envp;
    pthread_atfork(in_fork, NULL, NULL);
}
__attribute__((section(".preinit_array"),
               used)) static void (*const preinit)(int, char **, char **) = before_the_library;

/* Its own detach doesn't take the parent's away, nor the parent's its. */
static void detaches_are_ones_own(char *mapped) {
    pid_t child = fork();
    if (child == 0) {
        CHECK(shmdt(mapped) == 0);
        FAILS(shmdt(mapped), EINVAL);
        CHECK(attachments(segment) == 1);
        _exit(0);
    }
    wait_for_success(child);
    CHECK(attachments(segment) == 1);
    mapped[0] = 1;
}

static volatile int stop;

static void *busy(void *arg) {
    long n = 0;
    while (!stop) {
        CHECK(semop(set, OP(2, 1, 0), 1) == 0 && semop(set, OP(2, -1, 0), 1) == 0);
        char *p = shmat(segment, NULL, 0);
        CHECK(p != (void *)-1 && shmdt(p) == 0);
        n++;
    }
    (void)arg;
    return (void *)n;
}

/* Forks in the midst of other threads' calls; the children use everything. */
static void threaded_forks(void) {
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        CHECK(pthread_create(&threads[i], NULL, busy, NULL) == 0);
    for (int i = 0; i < 60; i++) {
        pid_t child = i % 3 == 2 ? raw_fork() : fork();
        CHECK(child >= 0);
        if (child == 0) {
            CHECK(semop(set, OP(2, 1, SEM_UNDO), 1) == 0);
            CHECK(semop(set, OP(2, -1, SEM_UNDO), 1) == 0);
            char *p = shmat(segment, NULL, 0);
            CHECK(p != (void *)-1 && shmdt(p) == 0);
            _exit(0);
        }
        wait_for_success(child);
    }
    stop = 1;
    for (int i = 0; i < 3; i++) {
        void *n;
        CHECK(pthread_join(threads[i], &n) == 0 && n != NULL);
    }
    wait_for_attachments(segment, 1);
    GIVES(semctl(set, 2, GETVAL, 0), 0);
}

/* More processes, one after the other, than any table of processes has room for if nobody cleaned
 * up. */
static void many_children(void) {
    for (int i = 0; i < 300; i++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            CHECK(semop(set, OP(2, 1, SEM_UNDO), 1) == 0);
            if (i % 3 == 0)
                raise(SIGKILL);
            if (i % 3 == 1)
                exit(0);
            _exit(0);
        }
        CHECK(waitpid(child, NULL, 0) == child);
    }
    for (int i = 0; i < 500 && semctl(set, 2, GETVAL, 0) != 0; i++)
        nap_ms(10);
    GIVES(semctl(set, 2, GETVAL, 0), 0);
    wait_for_attachments(segment, 1);
}

/* Children of children, and a program that forks before it calls. */
static void generations(void) {
    pid_t child = fork();
    if (child == 0) {
        pid_t grandchild = fork();
        if (grandchild == 0) {
            CHECK(attachments(segment) == 3);
            _exit(0);
        }
        wait_for_success(grandchild);
        wait_for_attachments(segment, 2);
        _exit(0);
    }
    wait_for_success(child);
    wait_for_attachments(segment, 1);
}

/* A child of libc's own fork, whose pid only libc learns, does not get that of the next child,
 * which inherits nothing. */
static void pids_are_not_mixed_up(void) {
    int alone = shmget(IPC_PRIVATE, 4096, 0600), go[2], terminal;
    char *mapped = shmat(alone, NULL, 0);
    CHECK(alone >= 0 && mapped != (void *)-1 && pipe(go) == 0);
    pid_t by_libc = forkpty(&terminal, NULL, NULL, NULL);
    CHECK(by_libc >= 0);
    if (by_libc == 0) {
        char c;
        _exit(read(go[0], &c, 1) != 1);
    }
    GIVES(shmdt(mapped), 0);
    pid_t next = fork();
    CHECK(next >= 0);
    if (next == 0)
        _exit(0);
    wait_for_success(next);
    CHECK(write(go[1], "x", 1) == 1);
    wait_for_success(by_libc);
    wait_for_attachments(alone, 0);
    struct shmid_ds ds;
    GIVES(shmctl(alone, IPC_STAT, &ds), 0);
    CHECK(ds.shm_lpid != next);
    GIVES(shmctl(alone, IPC_RMID, NULL), 0);
    close(terminal);
    close(go[0]);
    close(go[1]);
}

int main(void) {
    pid_t first = fork(); /* nothing is open yet */
    if (first == 0)
        _exit(semget(IPC_PRIVATE, 1, 0600) < 0);
    wait_for_success(first);

    segment = shmget(IPC_PRIVATE, 4096, 0600);
    set = semget(IPC_PRIVATE, 3, 0600);
    CHECK(segment >= 0 && set >= 0);
    char *mapped = shmat(segment, NULL, 0);
    CHECK(mapped != (void *)-1);
    child_counts(fork, 0);
    child_counts(fork, 1);
    child_counts(raw_fork, 0);
    child_counts(raw_fork, 1);
    child_counts_at_once();
    exec_detaches();
    orphan_counts(0);
    orphan_counts(1);
    siblings_take_one_place_each();
    a_handler_attaches_in_a_fork();
    detaches_are_ones_own(mapped);
    generations();
    threaded_forks();
    many_children();
    GIVES(shmctl(segment, IPC_RMID, NULL), 0);
    GIVES(shmdt(mapped), 0);
    FAILS(shmctl(segment, IPC_STAT, NULL), EINVAL);
    pids_are_not_mixed_up();
    return 0;
}
