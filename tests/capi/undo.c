/* What a process leaves behind that ends without saying good-bye. */
#include "capi.h"
#include <sched.h>

static int set;

static void holder_is_killed(void) {
    CHECK(semctl(set, 0, SETVAL, 1) == 0);
    pid_t child = fork();
    if (child == 0) {
        CHECK(semop(set, OP(0, -1, SEM_UNDO), 1) == 0);
        CHECK(semop(set, OP(1, 1, 0), 1) == 0);
        pause();
    }
    CHECK(semop(set, OP(1, -1, 0), 1) == 0);
    GIVES(semctl(set, 0, GETVAL, 0), 0);
    FAILS(semop(set, OP(0, -1, IPC_NOWAIT), 1), EAGAIN);
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
    /* A waiter gets it, or whoever asks. */
    GIVES(semop(set, OP(0, -1, SEM_UNDO), 1), 0);
    GIVES(semop(set, OP(0, 1, SEM_UNDO), 1), 0);
    GIVES(semctl(set, 0, GETVAL, 0), 1);
}

static void holder_dies_while_others_wait(void) {
    CHECK(semctl(set, 0, SETVAL, 1) == 0);
    pid_t holder = fork();
    if (holder == 0) {
        CHECK(semop(set, OP(0, -1, SEM_UNDO), 1) == 0);
        CHECK(semop(set, OP(1, 1, 0), 1) == 0);
        pause();
    }
    CHECK(semop(set, OP(1, -1, 0), 1) == 0);
    pid_t waiter = fork();
    if (waiter == 0) {
        CHECK(semop(set, OP(0, -1, 0), 1) == 0);
        _exit(0);
    }
    while (semctl(set, 0, GETNCNT, 0) != 1)
        nap_ms(1);
    CHECK(kill(holder, SIGKILL) == 0 && waitpid(holder, NULL, 0) == holder);
    wait_for_success(waiter);
    GIVES(semctl(set, 0, GETVAL, 0), 0);
}

static void exits_undo_too(void) {
    for (int way = 0; way < 3; way++) {
        CHECK(semctl(set, 0, SETVAL, 5) == 0);
        pid_t child = fork();
        if (child == 0) {
            CHECK(semop(set, OP(0, -2, SEM_UNDO), 1) == 0);
            CHECK(semop(set, OP(0, -1, 0), 1) == 0);
            if (way == 0)
                exit(0);
            if (way == 1)
                _exit(0);
            execl("/bin/true", "true", (char *)NULL);
        }
        wait_for_success(child);
        for (int i = 0; i < 500 && semctl(set, 0, GETVAL, 0) != 4; i++)
            nap_ms(10);
        GIVES(semctl(set, 0, GETVAL, 0), 4);
    }
}

/* A child doesn't inherit its parent's adjustments. */
static void not_inherited(void) {
    CHECK(semctl(set, 0, SETVAL, 5) == 0);
    CHECK(semop(set, OP(0, -1, SEM_UNDO), 1) == 0);
    pid_t child = fork();
    if (child == 0)
        exit(0);
    wait_for_success(child);
    GIVES(semctl(set, 0, GETVAL, 0), 4);
    CHECK(semop(set, OP(0, 1, SEM_UNDO), 1) == 0);
}

/* In the kernel a process that leaves a name space can't reach its sets any more. */
static void a_new_name_space_undoes(void) {
    CHECK(semctl(set, 0, SETVAL, 5) == 0);
    pid_t child = fork();
    if (child == 0) {
        CHECK(semop(set, OP(0, -2, SEM_UNDO), 1) == 0);
        int left = unshare(CLONE_NEWIPC) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWIPC) == 0;
        GIVES(semctl(set, 0, GETVAL, 0), left ? 5 : 3);
        _exit(0);
    }
    wait_for_success(child);
}

int main(void) {
    set = semget(IPC_PRIVATE, 2, 0600);
    CHECK(set >= 0);
    holder_is_killed();
    holder_dies_while_others_wait();
    exits_undo_too();
    not_inherited();
    a_new_name_space_undoes();
    return 0;
}
