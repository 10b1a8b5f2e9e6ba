/*
 * Whose list of SEM_UNDO adjustments a child of clone(2) has: with CLONE_SYSVSEM its parent's,
 * which is applied when the last of those who share it has ended; without, one of its own, with
 * CLONE_VM, too.
 */
#include "tests.h"
#include <sched.h>
#include <sys/mman.h>

/* The set that all of them use: one semaphore to adjust, one to wait for. */
static int set;

static int change(int number, int by, int flags) {
    struct sembuf operation = {(unsigned short)number, (short)by, (short)flags};
    return semop(set, &operation, 1);
}

static int value(int number) { return (int)OK(semctl(set, number, GETVAL)); }

/* What was to be undone of the first is forgotten, too. */
static void begin(int first) {
    set = (int)OK(semget(IPC_PRIVATE, 3, 0600));
    OK(semctl(set, 0, SETVAL, (union semun){.val = first}));
}

static void end(void) { OK(semctl(set, 0, IPC_RMID)); }

/* A child on a stack of its own. */
static pid_t cloned(int (*work)(void *), int flags, void *argument) {
    enum { STACK = 256 << 10 };
    char *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(stack != MAP_FAILED);
    pid_t pid = clone(work, stack + STACK, flags | SIGCHLD, argument);
    if (pid < 0 && errno == EINVAL)
        skip("clone is not what it is on Linux");
    return (pid_t)OK(pid);
}

static void await_value(int number, int wanted) {
    for (double began = seconds_now(); value(number) != wanted; nap_ms(1))
        CHECK(seconds_now() - began < 10);
}

/* The ways in which a child ends. */
enum { RETURNS, EXITS, DIES, EXECUTES, WAYS };

static int ends(int way) {
    char *arguments[] = {"true", NULL};
    if (way == EXITS)
        _exit(0);
    if (way == DIES)
        kill(getpid(), SIGKILL);
    if (way == EXECUTES) {
        execv("/bin/true", arguments);
        _exit(STATUS_FAILED);
    }
    return 0;
}

static void ended(pid_t pid, int way) {
    int status;
    EQUAL(OK(waitpid(pid, &status, 0)), pid);
    EQUAL(status, way == DIES ? SIGKILL : 0);
}

static int takes_two(void *way) {
    OK(change(0, -2, SEM_UNDO));
    EQUAL(OK(semctl(set, 0, GETPID)), getpid());
    return ends(*(int *)way);
}

/* In its parent's memory: what it has taken is there again when it ends, and not what its parent
 * has. */
static void its_own_in_the_same_memory(int more) {
    begin(10);
    OK(change(0, -1, SEM_UNDO));
    for (int way = 0; way < WAYS; way++) {
        siginfo_t info;
        pid_t one = cloned(takes_two, CLONE_VM | more, &way);
        OK(waitid(P_PID, (id_t)one, &info, WEXITED | WNOWAIT));
        EQUAL(value(0), 9);
        ended(one, way);
        EQUAL(value(0), 9);
        OK(change(0, -1, SEM_UNDO));
        OK(change(0, 1, SEM_UNDO));
    }
    EQUAL(OK(semctl(set, 0, GETPID)), getpid());
    end();
}

static void has_its_own_in_the_same_memory(void) { its_own_in_the_same_memory(0); }

static void has_its_own_while_its_parent_waits(void) { its_own_in_the_same_memory(CLONE_VFORK); }

static void parent_of_one_in_its_memory(void *way) {
    OK(change(0, -1, SEM_UNDO));
    ended(cloned(takes_two, CLONE_VM, way), *(int *)way);
    EQUAL(value(0), 9);
    OK(change(0, -3, SEM_UNDO));
    EQUAL(value(0), 6);
}

/* Its parent's is applied when that one ends. */
static void leaves_its_parents_alone(void) {
    begin(10);
    for (int way = 0; way < WAYS; way++) {
        joined(child(parent_of_one_in_its_memory, &way), 0);
        EQUAL(value(0), 10);
    }
    end();
}

/* One that says that it is there by the second semaphore, and is killed. */
static int takes_and_stays(void *unused) {
    (void)unused;
    OK(change(0, -2, SEM_UNDO));
    OK(change(1, 1, 0));
    for (;;)
        pause();
    return 0;
}

static void takes_eight(void *unused) {
    (void)unused;
    OK(change(0, -8, 0));
}

static void its_end_wakes_who_waits(void) {
    begin(8);
    pid_t one = cloned(takes_and_stays, CLONE_VM, NULL);
    await_value(1, 1);
    EQUAL(value(0), 6);
    pid_t waiter = child(takes_eight, NULL);
    for (double began = seconds_now(); OK(semctl(set, 0, GETNCNT)) != 1; nap_ms(1))
        CHECK(seconds_now() - began < 10);
    killed(one);
    joined(waiter, 0);
    EQUAL(value(0), 0);
    end();
}

static int waits_and_stays(void *unused) { return takes_and_stays(unused); }

/* What it has waited for, and was given by its parent, is its own. */
static void is_given_its_own(void) {
    begin(0);
    pid_t one = cloned(waits_and_stays, CLONE_VM, NULL);
    while (OK(semctl(set, 0, GETNCNT)) != 1)
        nap_ms(1);
    OK(change(0, 3, 0));
    await_value(1, 1);
    EQUAL(value(0), 1);
    killed(one);
    EQUAL(value(0), 3);
    end();
}

static int stays_as_another(void *unused) {
    (void)unused;
    char *arguments[] = {"sleep", "60", NULL};
    OK(change(0, -2, SEM_UNDO));
    execv("/bin/sleep", arguments);
    _exit(STATUS_FAILED);
}

/* It keeps the list when it executes something. */
static void keeps_its_own_at_exec(void) {
    begin(5);
    pid_t one = cloned(stays_as_another, CLONE_VM | CLONE_VFORK, NULL);
    OK(change(0, -1, SEM_UNDO));
    nap_ms(50);
    EQUAL(value(0), 2);
    killed(one);
    EQUAL(value(0), 4);
    end();
}

static void takes_two_as_well(void *way) { takes_two(way); }

static int makes_another(void *way) {
    OK(change(0, -1, SEM_UNDO));
    ended(cloned(takes_two, CLONE_VM, way), *(int *)way);
    EQUAL(value(0), 9);
    joined(child(takes_two_as_well, way), 0);
    EQUAL(value(0), 9);
    return 0;
}

static void so_has_its_child(void) {
    begin(10);
    int way = RETURNS;
    ended(cloned(makes_another, CLONE_VM, &way), RETURNS);
    EQUAL(value(0), 10);
    end();
}

/* One after the other, and at the same time. */
static void many_have_their_own(void) {
    enum { MANY = 12 };
    pid_t all[MANY];
    begin(1000);
    for (int i = 0; i < 100; i++) {
        int way = i % WAYS;
        ended(cloned(takes_two, CLONE_VM, &way), way);
    }
    EQUAL(value(0), 1000);
    for (int i = 0; i < MANY; i++) {
        all[i] = cloned(takes_and_stays, CLONE_VM, NULL);
        await_value(1, i + 1);
    }
    EQUAL(value(0), 1000 - 2 * MANY);
    for (int i = 0; i < MANY; i++) {
        killed(all[i]);
        EQUAL(value(0), 1000 - 2 * (MANY - i - 1));
    }
    end();
}

static void has_its_parents_in_the_same_memory(void *unused) {
    (void)unused;
    int way = RETURNS;
    ended(cloned(takes_two, CLONE_VM | CLONE_SYSVSEM, &way), way);
    EQUAL(value(0), 8);
}

static void shares_its_parents_in_the_same_memory(void) {
    begin(10);
    joined(child(has_its_parents_in_the_same_memory, NULL), 0);
    EQUAL(value(0), 10);
    end();
}

/* Two who share a list, and end in this order and way. */
struct order {
    int parent_first, way;
};

static int takes_and_ends_when_told(void *order) {
    OK(change(0, -2, SEM_UNDO));
    OK(change(1, 1, 0));
    OK(change(2, -1, 0));
    return ends(((struct order *)order)->way);
}

static void shares(void *order) {
    OK(change(0, -1, SEM_UNDO));
    pid_t one = cloned(takes_and_ends_when_told, CLONE_SYSVSEM, order);
    await_value(1, 1);
    EQUAL(value(0), 7);
    OK(change(0, -3, SEM_UNDO));
    if (!((struct order *)order)->parent_first) {
        OK(change(2, 1, 0));
        ended(one, ((struct order *)order)->way);
        EQUAL(value(0), 4);
        OK(change(0, 1, SEM_UNDO));
    }
    ends(((struct order *)order)->way);
}

static void with_each_way_it_is_applied_by_the_last(int parent_first) {
    for (int way = RETURNS; way <= DIES; way++) {
        struct order order = {parent_first, way};
        begin(10);
        ended(child(shares, &order), way);
        if (parent_first) {
            EQUAL(value(0), 4);
            OK(change(2, 1, 0));
        }
        await_value(0, 10);
        end();
    }
}

static void applied_when_the_parent_ends_after_its_child(void) {
    with_each_way_it_is_applied_by_the_last(0);
}

static void applied_when_the_child_ends_after_its_parent(void) {
    with_each_way_it_is_applied_by_the_last(1);
}

static int first_of_three(void *unused) {
    (void)unused;
    struct order order = {0, RETURNS};
    OK(change(0, 5, SEM_UNDO));
    cloned(takes_and_ends_when_told, CLONE_SYSVSEM, &order);
    await_value(1, 1);
    return 0;
}

static void three_share(void *unused) {
    (void)unused;
    OK(change(0, -1, SEM_UNDO));
    ended(cloned(first_of_three, CLONE_SYSVSEM, NULL), RETURNS);
    OK(change(0, -1, SEM_UNDO));
}

static void the_last_of_three_applies(void) {
    begin(10);
    joined(child(three_share, NULL), 0);
    EQUAL(value(0), 11);
    OK(change(2, 1, 0));
    await_value(0, 10);
    end();
}

static void takes_one(void *unused) {
    (void)unused;
    OK(change(0, -1, SEM_UNDO));
}

static void shares_and_forks(void *unused) {
    (void)unused;
    struct order order = {1, RETURNS};
    cloned(takes_and_ends_when_told, CLONE_SYSVSEM, &order);
    await_value(1, 1);
    joined(child(takes_one, NULL), 0);
    EQUAL(value(0), 8);
    pid_t stays = fork();
    if (stays == 0)
        for (;;)
            pause();
    OK(change(2, 1, 0));
    OK(waitpid(-1, NULL, 0));
    EQUAL(value(0), 8);
}

/* A child of fork has its own, as ever, and doesn't keep that of its parent from being applied. */
static void a_fork_does_not_share(void) {
    begin(10);
    joined(child(shares_and_forks, NULL), 0);
    await_value(0, 10);
    end();
}

static int leaves_the_list(void *unused) {
    (void)unused;
    OK(change(0, -2, SEM_UNDO));
    if (unshare(CLONE_SYSVSEM) != 0)
        skip("not allowed here");
    EQUAL(value(0), 7);
    OK(change(0, -4, SEM_UNDO));
    return 0;
}

static void one_of_two_leaves(void *unused) {
    (void)unused;
    OK(change(0, -1, SEM_UNDO));
    pid_t one = cloned(leaves_the_list, CLONE_SYSVSEM, NULL);
    joined(one, 0);
    EQUAL(value(0), 7);
    OK(unshare(CLONE_SYSVSEM));
    EQUAL(value(0), 10);
}

static void unshare_leaves_the_list_to_the_others(void) {
    begin(10);
    joined(child(one_of_two_leaves, NULL), 0);
    EQUAL(value(0), 10);
    end();
}

TESTS({"has_its_own_in_the_same_memory", has_its_own_in_the_same_memory},
      {"has_its_own_while_its_parent_waits", has_its_own_while_its_parent_waits},
      {"leaves_its_parents_alone", leaves_its_parents_alone},
      {"its_end_wakes_who_waits", its_end_wakes_who_waits}, {"is_given_its_own", is_given_its_own},
      {"keeps_its_own_at_exec", keeps_its_own_at_exec}, {"so_has_its_child", so_has_its_child},
      {"many_have_their_own", many_have_their_own},
      {"shares_its_parents_in_the_same_memory", shares_its_parents_in_the_same_memory},
      {"applied_when_the_parent_ends_after_its_child",
       applied_when_the_parent_ends_after_its_child},
      {"applied_when_the_child_ends_after_its_parent",
       applied_when_the_child_ends_after_its_parent},
      {"the_last_of_three_applies", the_last_of_three_applies},
      {"a_fork_does_not_share", a_fork_does_not_share},
      {"unshare_leaves_the_list_to_the_others", unshare_leaves_the_list_to_the_others})
