/* Semaphore sets, as sem_overview(7)'s System V sibling, semop(2) and semctl(2) describe them. */
#include "tests.h"
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>

static int new_set(int count) { return (int)OK(semget(IPC_PRIVATE, count, 0600)); }

static void remove_set(int id) { OK(semctl(id, 0, IPC_RMID)); }

static int value(int id, int number) { return (int)OK(semctl(id, number, GETVAL)); }

static void set_value(int id, int number, int to) {
    OK(semctl(id, number, SETVAL, (union semun){.val = to}));
}

static int change(int id, int number, int by, int flags) {
    struct sembuf operation = {(unsigned short)number, (short)by, (short)flags};
    return semop(id, &operation, 1);
}

/* Waits until so many processes wait for the semaphore to grow. */
static void await_waiters(int id, int number, int count) {
    double began = seconds_now();
    while (OK(semctl(id, number, GETNCNT)) != count) {
        CHECK(seconds_now() - began < 10);
        nap_ms(1);
    }
}

static void reports_limits(void) {
    struct seminfo info, used;
    OK(semctl(0, 0, IPC_INFO, (union semun){.info = &info}));
    CHECK(info.semmni > 0 && info.semmsl > 0 && info.semmns > 0 && info.semopm > 0);
    EQUAL(info.semvmx, 32767);
    EQUAL(info.semaem, 32767);
    int id = new_set(5);
    OK(semctl(0, 0, SEM_INFO, (union semun){.info = &used}));
    EQUAL(used.semusz, 1);
    EQUAL(used.semaem, 5);
    remove_set(id);
}

static void keeps_limits(void) {
    struct seminfo info;
    OK(semctl(0, 0, IPC_INFO, (union semun){.info = &info}));
    FAILS(semget(IPC_PRIVATE, info.semmsl + 1, 0600), EINVAL);
    FAILS(semget(IPC_PRIVATE, 0, 0600), EINVAL);
    FAILS(semget(IPC_PRIVATE, -1, 0600), EINVAL);
    int id = new_set(info.semmsl);
    EQUAL(change(id, info.semmsl - 1, 7, 0), 0);
    EQUAL(value(id, info.semmsl - 1), 7);
    FAILS(change(id, info.semmsl, 1, 0), EFBIG);
    FAILS(semctl(id, info.semmsl, GETVAL), EINVAL);
    size_t count = (size_t)info.semopm;
    struct sembuf *list = calloc(count + 1, sizeof *list);
    OK(semop(id, list, count));
    FAILS(semop(id, list, count + 1), E2BIG);
    FAILS(semop(id, list, 0), EINVAL);
    free(list);
    remove_set(id);
}

static void holds_every_value_of_a_large_set(void) {
    enum { COUNT = 5000 };
    unsigned short values[COUNT];
    int id = new_set(COUNT);
    for (int i = 0; i < COUNT; i++)
        values[i] = (unsigned short)(i * 7 % 32768);
    OK(semctl(id, 0, SETALL, (union semun){.array = values}));
    memset(values, 0, sizeof values);
    OK(semctl(id, 0, GETALL, (union semun){.array = values}));
    for (int i = 0; i < COUNT; i++)
        EQUAL(values[i], i * 7 % 32768);
    remove_set(id);
}

static void refuses_bad_addresses(void) {
    int id = new_set(2);
    void *bad = (void *)8;
    FAILS(semop(id, bad, 1), EFAULT);
    struct sembuf operation = {0, 1, 0};
    FAILS(semtimedop(id, &operation, 1, bad), EFAULT);
    FAILS(semctl(id, 0, IPC_STAT, (union semun){.buf = bad}), EFAULT);
    FAILS(semctl(id, 0, IPC_SET, (union semun){.buf = bad}), EFAULT);
    FAILS(semctl(id, 0, GETALL, (union semun){.array = bad}), EFAULT);
    FAILS(semctl(id, 0, SETALL, (union semun){.array = bad}), EFAULT);
    FAILS(semctl(0, 0, SEM_INFO, (union semun){.info = bad}), EFAULT);
    EQUAL(value(id, 0), 0);
    remove_set(id);
}

static void times_out_when_told_to(void) {
    int id = new_set(1);
    struct sembuf operation = {0, -1, 0};
    struct timespec limit = {0, 120 * 1000000};
    double began = seconds_now();
    FAILS(semtimedop(id, &operation, 1, &limit), EAGAIN);
    double took = seconds_now() - began;
    CHECK(took >= 0.119 && took < 2);
    limit.tv_nsec = 1000000000;
    FAILS(semtimedop(id, &operation, 1, &limit), EINVAL);
    limit = (struct timespec){-1, 0};
    FAILS(semtimedop(id, &operation, 1, &limit), EINVAL);
    limit = (struct timespec){0, 0};
    FAILS(semtimedop(id, &operation, 1, &limit), EAGAIN);
    EQUAL(OK(semctl(id, 0, GETNCNT)), 0);
    remove_set(id);
}

static void is_interrupted_by_a_signal(void) {
    int id = new_set(1);
    handle(SIGALRM, do_nothing);
    alarm(1);
    FAILS(change(id, 0, -1, 0), EINTR);
    struct sembuf operation = {0, -1, 0};
    struct timespec limit = {30, 0};
    alarm(1);
    FAILS(semtimedop(id, &operation, 1, &limit), EINTR);
    EQUAL(OK(semctl(id, 0, GETNCNT)), 0);
    remove_set(id);
}

static int handler_set;

static void add_one(int number) {
    (void)number;
    change(handler_set, 0, 1, 0);
}

/* The handler itself lets the interrupted wait go on, or it is interrupted; nothing gets lost. */
static void works_in_a_signal_handler(void) {
    handler_set = new_set(1);
    handle(SIGALRM, add_one);
    alarm(1);
    if (change(handler_set, 0, -1, 0) == -1) {
        EQUAL(errno, EINTR);
        EQUAL(value(handler_set, 0), 1);
    } else {
        EQUAL(value(handler_set, 0), 0);
    }
    remove_set(handler_set);
}

static void takes_one(void *id) { OK(change(*(int *)id, 0, -1, 0)); }

static void a_waiting_child_is_counted_and_woken(void) {
    int id = new_set(1);
    pid_t pids[3];
    for (int i = 0; i < 3; i++) {
        pids[i] = child(takes_one, &id);
        await_waiters(id, 0, i + 1);
    }
    for (int i = 0; i < 3; i++) {
        OK(change(id, 0, 1, 0));
        joined(pids[i], 0); /* first come, first served */
        EQUAL(OK(semctl(id, 0, GETPID)), pids[i]);
    }
    remove_set(id);
}

static void expects_removal(void *id) { FAILS(change(*(int *)id, 0, -1, 0), EIDRM); }

static void removal_ends_waits(void) {
    int id = new_set(1);
    pid_t pids[4];
    for (int i = 0; i < 4; i++)
        pids[i] = child(expects_removal, &id);
    await_waiters(id, 0, 4);
    remove_set(id);
    for (int i = 0; i < 4; i++)
        joined(pids[i], 0);
    FAILS(change(id, 0, 1, 0), EINVAL);
}

static void locks_with_undo(void *id) {
    OK(change(*(int *)id, 0, -1, SEM_UNDO));
    OK(change(*(int *)id, 1, 1, 0));
    pause();
}

static void a_killed_holder_gives_back(void) {
    int id = new_set(2);
    set_value(id, 0, 1);
    for (int round = 0; round < 20; round++) {
        pid_t pid = child(locks_with_undo, &id);
        OK(change(id, 1, -1, 0));
        EQUAL(value(id, 0), 0);
        FAILS(change(id, 0, -1, IPC_NOWAIT), EAGAIN);
        killed(pid);
        EQUAL(value(id, 0), 1);
    }
    remove_set(id);
}

static void a_killed_holder_lets_a_waiter_in(void) {
    int id = new_set(2);
    set_value(id, 0, 1);
    pid_t holder = child(locks_with_undo, &id);
    OK(change(id, 1, -1, 0));
    pid_t waiter = child(takes_one, &id);
    await_waiters(id, 0, 1);
    double began = seconds_now();
    killed(holder);
    joined(waiter, 0);
    CHECK(seconds_now() - began < 3);
    remove_set(id);
}

static void *raises_with_undo(void *id) {
    OK(change(*(int *)id, 0, 3, SEM_UNDO));
    return NULL;
}

static void uses_a_thread(void *id) {
    pthread_t thread;
    EQUAL(pthread_create(&thread, NULL, raises_with_undo, id), 0);
    EQUAL(pthread_join(thread, NULL), 0);
    EQUAL(value(*(int *)id, 0), 3); /* the thread's end undoes nothing */
    OK(change(*(int *)id, 0, 1, SEM_UNDO));
}

/* Adjustments belong to the process, not to the thread that made them. */
static void threads_share_what_is_to_be_undone(void) {
    int id = new_set(1);
    joined(child(uses_a_thread, &id), 0);
    EQUAL(value(id, 0), 0);
    remove_set(id);
}

static int by_number(int flags) { return (int)syscall(SYS_unshare, flags); }

/* A new list of what is to be undone: what the old one had is undone at once, and who waits for it
 * is woken. */
static void a_new_list_undoes_the_old_one(void) {
    int (*const ways[])(int) = {unshare, by_number};
    int id = new_set(2);
    for (int way = 0; way < 2; way++) {
        set_value(id, 0, 1);
        set_value(id, 1, 5);
        OK(change(id, 0, -1, SEM_UNDO));
        OK(change(id, 1, 3, SEM_UNDO));
        if (ways[way](CLONE_SYSVSEM) != 0)
            skip("not allowed here");
        EQUAL(value(id, 0), 1);
        EQUAL(value(id, 1), 5);
        OK(change(id, 0, -1, SEM_UNDO));
        pid_t waiter = child(takes_one, &id);
        await_waiters(id, 0, 1);
        OK(ways[way](CLONE_SYSVSEM));
        joined(waiter, 0);
        EQUAL(value(id, 0), 0);
        OK(ways[way](CLONE_SYSVSEM)); /* Once is enough. */
        EQUAL(value(id, 1), 5);
        FAILS(ways[way](CLONE_SYSVSEM | 0x40), EINVAL);
    }
    remove_set(id);
}

static void *leaves_the_list(void *id) {
    OK(unshare(CLONE_SYSVSEM));
    EQUAL(value(*(int *)id, 0), 0);
    return NULL;
}

/* The list of several threads lives on with the others. */
static void a_thread_leaves_the_list_to_the_others(void) {
    int id = new_set(1);
    pthread_t thread;
    set_value(id, 0, 1);
    OK(change(id, 0, -1, SEM_UNDO));
    CHECK(pthread_create(&thread, NULL, leaves_the_list, &id) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    EQUAL(value(id, 0), 0);
    remove_set(id);
}

static void keeps_many_sets_apart(void) {
    enum { COUNT = 2000 };
    int ids[COUNT];
    for (int i = 0; i < COUNT; i++) {
        ids[i] = new_set(1 + i % 3);
        set_value(ids[i], i % 3, i % 1000);
    }
    for (int i = 0; i < COUNT; i++)
        EQUAL(value(ids[i], i % 3), i % 1000);
    for (int i = 0; i < COUNT; i++)
        remove_set(ids[i]);
    struct seminfo used;
    OK(semctl(0, 0, SEM_INFO, (union semun){.info = &used}));
    EQUAL(used.semusz, 0);
    EQUAL(used.semaem, 0);
}

static void as_many_sets_as_allowed_and_no_more(void) {
    struct seminfo info;
    OK(semctl(0, 0, IPC_INFO, (union semun){.info = &info}));
    if (info.semmni > 40000)
        skip("more sets are allowed here than are quickly made");
    int *ids = calloc((size_t)info.semmni, sizeof *ids);
    for (int i = 0; i < info.semmni; i++)
        ids[i] = new_set(1);
    FAILS(semget(IPC_PRIVATE, 1, 0600), ENOSPC);
    OK(change(ids[info.semmni - 1], 0, 1, SEM_UNDO));
    for (int i = 0; i < info.semmni; i++)
        remove_set(ids[i]);
    free(ids);
}

static void notes_times_and_owner(void) {
    struct semid_ds ds;
    time_t before = time(NULL);
    int id = new_set(3);
    OK(semctl(id, 0, IPC_STAT, (union semun){.buf = &ds}));
    EQUAL(ds.sem_nsems, 3);
    EQUAL(ds.sem_otime, 0);
    CHECK(ds.sem_ctime >= before - 1 && ds.sem_ctime <= time(NULL));
    EQUAL(ds.sem_perm.cuid, geteuid());
    EQUAL(ds.sem_perm.gid, getegid());
    EQUAL(ds.sem_perm.mode & 0777, 0600);
    OK(change(id, 0, 1, 0));
    OK(semctl(id, 0, IPC_STAT, (union semun){.buf = &ds}));
    CHECK(ds.sem_otime >= before - 1 && ds.sem_otime <= time(NULL));
    remove_set(id);
}

/* An id's low bits are its index, so an id does, too. */
static void is_listed_by_its_id(void) {
    struct semid_ds ds;
    const int first = (int)OK(semget(IPC_PRIVATE, 1, 0600)),
              id = (int)OK(semget(IPC_PRIVATE, 1, 0600));
    EQUAL(semctl(id, 0, SEM_STAT, (union semun){.buf = &ds}), id);
    EQUAL(semctl(id, 0, SEM_STAT_ANY, (union semun){.buf = &ds}), id);
    EQUAL(semctl(first, 0, SEM_STAT, (union semun){.buf = &ds}), first);
    FAILS(semctl(-1, 0, SEM_STAT, (union semun){.buf = &ds}), EINVAL);
    OK(semctl(id, 0, IPC_RMID));
    FAILS(semctl(id, 0, SEM_STAT, (union semun){.buf = &ds}), EINVAL);
    OK(semctl(first, 0, IPC_RMID));
}

/* The bit by which other processors' kernels tell the structures' versions apart (IPC_64). */
static void refuses_commands_with_a_bit_too_many(void) {
    struct semid_ds ds;
    const int id = (int)OK(semget(IPC_PRIVATE, 1, 0600));
    FAILS(semctl(id, 0, IPC_STAT | 0x100, (union semun){.buf = &ds}), EINVAL);
    FAILS(semctl(id, 0, SEM_STAT | 0x100, (union semun){.buf = &ds}), EINVAL);
    FAILS(semctl(id, 0, IPC_INFO | 0x100, (union semun){.buf = &ds}), EINVAL);
    FAILS(semctl(id, 0, IPC_RMID | 0x100), EINVAL);
    OK(semctl(id, 0, IPC_RMID));
}

TESTS({"sem/reports_limits", reports_limits}, {"sem/keeps_limits", keeps_limits},
      {"sem/holds_every_value_of_a_large_set", holds_every_value_of_a_large_set},
      {"sem/refuses_bad_addresses", refuses_bad_addresses},
      {"sem/times_out_when_told_to", times_out_when_told_to},
      {"sem/is_interrupted_by_a_signal", is_interrupted_by_a_signal},
      {"sem/works_in_a_signal_handler", works_in_a_signal_handler},
      {"sem/a_waiting_child_is_counted_and_woken", a_waiting_child_is_counted_and_woken},
      {"sem/removal_ends_waits", removal_ends_waits},
      {"sem/a_killed_holder_gives_back", a_killed_holder_gives_back},
      {"sem/a_killed_holder_lets_a_waiter_in", a_killed_holder_lets_a_waiter_in},
      {"sem/threads_share_what_is_to_be_undone", threads_share_what_is_to_be_undone},
      {"sem/a_new_list_undoes_the_old_one", a_new_list_undoes_the_old_one},
      {"sem/a_thread_leaves_the_list_to_the_others", a_thread_leaves_the_list_to_the_others},
      {"sem/keeps_many_sets_apart", keeps_many_sets_apart},
      {"sem/as_many_sets_as_allowed_and_no_more", as_many_sets_as_allowed_and_no_more},
      {"sem/notes_times_and_owner", notes_times_and_owner},
      {"sem/is_listed_by_its_id", is_listed_by_its_id},
      {"sem/refuses_commands_with_a_bit_too_many", refuses_commands_with_a_bit_too_many})
