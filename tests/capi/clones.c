/* Children in their parent's memory, of clone(CLONE_VM), which have adjustments of SEM_UNDO of
 * their own. A program apart from undo.c: valgrind, under which that runs, has no such children. */
#include "capi.h"
#include <sched.h>

static int set;

static int takes_and_exits(void *unused) {
    (void)unused;
    CHECK(semop(set, OP(0, -2, SEM_UNDO), 1) == 0);
    exit(0);
}

/* A process in its parent's memory that runs the handlers of exit leaves the pool alone. */
static void exits_in_its_parents_memory(void) {
    static char stack[256 << 10] __attribute__((aligned(16)));
    CHECK(semctl(set, 0, SETVAL, 5) == 0);
    pid_t parent = fork();
    if (parent == 0) {
        int segment = shmget(IPC_PRIVATE, 4096, 0600);
        CHECK(segment >= 0 && shmat(segment, NULL, 0) != (void *)-1);
        CHECK(semop(set, OP(0, -1, SEM_UNDO), 1) == 0);
        pid_t child = clone(takes_and_exits, stack + sizeof stack, CLONE_VM | SIGCHLD, NULL);
        CHECK(child > 0);
        wait_for_success(child);
        GIVES(semctl(set, 0, GETVAL, 0), 4);
        CHECK(attachments(segment) == 1 && shmctl(segment, IPC_RMID, NULL) == 0);
        CHECK(semop(set, OP(0, -1, SEM_UNDO), 1) == 0 && semop(set, OP(0, 1, 0), 1) == 0);
        _exit(0);
    }
    wait_for_success(parent);
    GIVES(semctl(set, 0, GETVAL, 0), 6);
}

static int takes_and_returns(void *unused) {
    (void)unused;
    CHECK(semop(set, OP(0, -2, SEM_UNDO), 1) == 0);
    return 0;
}

static int takes_and_is_killed(void *unused) {
    takes_and_returns(unused);
    return kill(getpid(), SIGKILL);
}

/* Each takes a slot of the pool, which is free again when it has ended. */
static void many_come_and_go_in_one_memory(void) {
    static char stack[256 << 10] __attribute__((aligned(16)));
    CHECK(semctl(set, 0, SETVAL, 5) == 0);
    for (int i = 0; i < 3000; i++) {
        pid_t child = clone(i % 2 ? takes_and_returns : takes_and_is_killed, stack + sizeof stack,
                            CLONE_VM | (i % 3 ? 0 : CLONE_VFORK) | SIGCHLD, NULL);
        CHECK(child > 0 && waitpid(child, NULL, 0) == child);
    }
    GIVES(semctl(set, 0, GETVAL, 0), 5);
}

int main(void) {
    set = semget(IPC_PRIVATE, 1, 0600);
    CHECK(set >= 0);
    exits_in_its_parents_memory();
    many_come_and_go_in_one_memory();
    CHECK(semctl(set, 0, IPC_RMID) == 0);
    return 0;
}
