/*
 * One lie, that a process which lives holds the pool's lock, and what stands beside a call that
 * waits for it: other threads, forks, exits, signals. Each step of a call is within the call's one
 * deadline, and no other call of the process waits with it: nobody waits in a pool while others
 * of the process stand in line behind it. Changes the pool by its file, as docs/layout.md says.
 */
#define TIME_LIMIT 120
#include "pool.h"
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/time.h>

#define fail(...) check_failed(__FILE__, __LINE__, __VA_ARGS__)

enum { ROOT = 1024, PROCESSES = 1, SEGMENTS = 3, PAGE = 4096, HELD = 1 << 30, PIECES = 30 };

/* What is promised, in seconds, and what a busy machine may add. */
static const double PATIENT = 20, BRIEF = 1, AT_ONCE = 0.1, SLACK = 3;

static pid_t bystander;
static int bystanders_set;

static void stand_by(void *set) {
    struct sembuf mine = {0, 1, SEM_UNDO};
    OK(semop(*(int *)set, &mine, 1));
    for (;;) {
        pause();
    }
}

/* A process that lives, is known to the pool, and has something to undo in a set. */
static void begin(void) {
    bystanders_set = (int)OK(semget(IPC_PRIVATE, 25, 0600));
    open_pool();
    bystander = child(stand_by, &bystanders_set);
    while (OK(semctl(bystanders_set, 0, GETVAL)) != 1) {
        nap_ms(1);
    }
}

static void end(void) {
    killed(bystander);
    OK(semctl(bystanders_set, 0, IPC_RMID));
}

/* It holds the lock, says the liar. */
static void lie(void) {
    uint32_t slot = 0;
    for (; *half(table(PROCESSES) + slot * 128 + 8) != (uint32_t)bystander; slot++) {
    }
    const uint64_t generation = *word(table(PROCESSES) + slot * 128) >> 48;
    const uint32_t lied = (uint32_t)(HELD | (generation & 0x3fff) << 16 | slot);
    uint32_t is_free = 0;
    while (!atomic_compare_exchange_strong(half(ROOT), &is_free, lied)) {
        is_free = 0;
    }
}

static void lift(void) { *half(ROOT) = 0; }

static void within(const char *what, double began, double limit) {
    const double took = seconds_now() - began;
    if (took > limit + SLACK) {
        fail("%s took %.1f s, not %.1f", what, took, limit);
    }
}

static double began;
static int segment;

static void *attaches(void *took) {
    CHECK(shmat(segment, NULL, 0) == (void *)-1);
    *(double *)took = seconds_now() - began;
    return NULL;
}

enum { THREADS = 5 };
static pthread_t threads[THREADS];
static double took[THREADS];

/* Threads wait for the lock, in vain. */
static void all_attach(void) {
    lie();
    began = seconds_now();
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, attaches, &took[i]) == 0);
    }
    nap_ms(300);
}

static void test_threads_wait_side_by_side(void) {
    begin();
    segment = (int)OK(shmget(IPC_PRIVATE, PAGE, 0600));
    char *first = shmat(segment, NULL, 0);
    char *second = shmat(segment, NULL, 0);
    CHECK(first != (void *)-1 && second != (void *)-1);
    all_attach();
    double now = seconds_now();
    OK(shmdt(first));
    within("shmdt", now, BRIEF);
    now = seconds_now();
    const pid_t forked = (pid_t)OK(fork());
    if (forked == 0) {
        _exit(0);
    }
    within("fork", now, BRIEF);
    joined(forked, 0);
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
        if (took[i] > PATIENT + SLACK) {
            fail("shmat of a thread among %d took %.1f s", THREADS, took[i]);
        }
    }
    lift();
    struct shmid_ds ds;
    OK(shmctl(segment, IPC_STAT, &ds));
    EQUAL(ds.shm_nattch, 1);
    OK(shmdt(second));
    OK(shmctl(segment, IPC_RMID, NULL));
    end();
}

static void leave(int number) {
    (void)number;
    exit(3);
}

static void attaches_until_it_is_told_to_end(void *unused) {
    (void)unused;
    handle(SIGTERM, leave);
    CHECK(shmat(segment, NULL, 0) != (void *)-1);
    all_attach();
    /* This thread, too. */
    for (;;) {
        shmat(segment, NULL, 0);
    }
}

static void test_a_process_ends_beside_its_threads(void) {
    begin();
    segment = (int)OK(shmget(IPC_PRIVATE, PAGE, 0600));
    const pid_t ends = child(attaches_until_it_is_told_to_end, NULL);
    nap_ms(1500);
    const double now = seconds_now();
    OK(kill(ends, SIGTERM));
    joined(ends, 3);
    within("exit", now, BRIEF);
    lift();
    OK(shmctl(segment, IPC_RMID, NULL));
    end();
}

static volatile sig_atomic_t handled;
static double handled_after;

static void note(int number) {
    (void)number;
    if (!handled) {
        handled_after = seconds_now() - began;
    }
    handled = 1;
    lift();
}

static int queue;

static long attach(void) { return (long)shmat(segment, NULL, 0); }

static long send_first(void) {
    const struct {
        long type;
        char text[8];
    } message = {1, "first"};
    return msgsnd(queue, &message, sizeof message.text, IPC_NOWAIT);
}

static long needs_a_record(void) {
    struct sembuf mine = {0, 1, SEM_UNDO};
    return semop(bystanders_set, &mine, 1);
}

/* So many that they don't fit into a waiter's record; the last one waits. */
static long waits_with_many(const struct timespec *time) {
    struct sembuf all[25];
    for (unsigned short i = 0; i < 25; i++) {
        all[i] = (struct sembuf){i, i < 24 ? 1 : -1, 0};
    }
    return semtimedop(bystanders_set, all, 25, time);
}

static long waits_long_with_many(void) { return waits_with_many(&(struct timespec){60, 0}); }

static long make_set(void) { return semget(IPC_PRIVATE, 1, 0600); }

static long ask(void) {
    struct shmid_ds ds;
    return shmctl(segment, IPC_STAT, &ds);
}

/* A signal comes while a call waits for the lock. Its handler runs at once, and ends the lie; the
 * call ends with EINTR if it knows that. */
static long interrupted(const char *what, long (*call)(void), int error) {
    lie();
    handled = 0;
    handle(SIGALRM, note);
    const struct itimerval soon = {{0, 0}, {0, 300000}};
    began = seconds_now();
    OK(setitimer(ITIMER_REAL, &soon, NULL));
    errno = 0;
    const long result = call();
    const int had = errno;
    within(what, began, 0.3 + AT_ONCE);
    CHECK(handled);
    if (handled_after > 0.3 + AT_ONCE + SLACK) {
        fail("in %s the signal was handled after %.1f s", what, handled_after);
    }
    if (error ? result != -1 || had != error : result == -1) {
        fail("%s returned %ld, errno %d", what, result, had);
    }
    return result;
}

static void test_signals_are_handled_at_once(void) {
    begin();
    segment = (int)OK(shmget(IPC_PRIVATE, PAGE, 0600));
    queue = (int)OK(msgget(IPC_PRIVATE, 0600));
    OK(shmdt((void *)interrupted("shmat", attach, 0)));
    interrupted("shmctl", ask, 0);
    OK(semctl((int)interrupted("semget", make_set, 0), 0, IPC_RMID));
    interrupted("msgsnd", send_first, EINTR);
    interrupted("semop", needs_a_record, EINTR);
    interrupted("semtimedop", waits_long_with_many, EINTR);
    EQUAL(semctl(bystanders_set, 0, GETVAL), 1);
    OK(send_first());
    OK(needs_a_record());
    EQUAL(semctl(bystanders_set, 0, GETVAL), 2);

    lie();
    began = seconds_now();
    FAILS(waits_with_many(&(struct timespec){0, 200000000}), EAGAIN);
    within("semtimedop", began, BRIEF);
    lift();
    EQUAL(semctl(bystanders_set, 1, GETVAL), 0);
    OK(msgctl(queue, IPC_RMID, NULL));
    OK(shmctl(segment, IPC_RMID, NULL));
    end();
}

static unsigned long attachments(int id) {
    struct shmid_ds ds;
    OK(shmctl(id, IPC_STAT, &ds));
    return ds.shm_nattch;
}

static void test_pieces_have_one_deadline(void) {
    begin();
    const int large = (int)OK(shmget(IPC_PRIVATE, 2 * PIECES * PAGE, 0600));
    segment = (int)OK(shmget(IPC_PRIVATE, PAGE, 0600));
    char *start = shmat(large, NULL, 0);
    CHECK(start != (void *)-1);
    for (int i = 0; i < PIECES; i++) {
        char *at = start + (2 * i + 1) * PAGE;
        CHECK(shmat(segment, at, SHM_REMAP) == at);
    }
    EQUAL(attachments(large), PIECES);
    lie();
    began = seconds_now();
    OK(shmdt(start));
    within("shmdt of many pieces", began, BRIEF);
    lift();
    EQUAL(attachments(large), 0);
    EQUAL(attachments(segment), PIECES);
    /* And over many. */
    CHECK(shmat(large, start, SHM_REMAP) == start);
    EQUAL(attachments(segment), 0);
    /* A hole in the middle leaves two, one at the end leaves one. */
    CHECK(shmat(segment, start + PAGE, SHM_REMAP) == start + PAGE);
    EQUAL(attachments(large), 2);
    CHECK(shmat(segment, start + 2 * PAGE, SHM_REMAP) == start + 2 * PAGE);
    EQUAL(attachments(large), 2);
    OK(shmdt(start));
    EQUAL(attachments(large), 0);
    OK(shmdt(start + PAGE));
    OK(shmdt(start + 2 * PAGE));
    OK(shmctl(segment, IPC_RMID, NULL));
    OK(shmctl(large, IPC_RMID, NULL));
    end();
}

/* The parent is gone before its child, of which the library was not told, makes its first call. */
static void leaves_an_orphan(void *told) {
    static int ids[PIECES];
    for (int i = 0; i < PIECES; i++) {
        ids[i] = (int)OK(shmget(IPC_PRIVATE, PAGE, 0600));
        for (int times = 0; times <= i % 2; times++) {
            CHECK(shmat(ids[i], NULL, 0) != (void *)-1);
        }
    }
    const pid_t parent = getpid();
    if (syscall(SYS_fork) != 0) {
        _exit(0);
    }
    while (getppid() == parent) {
        nap_ms(1);
    }
    lie();
    began = seconds_now();
    semctl(bystanders_set, 0, GETVAL);
    within("the first call", began, BRIEF);
    lift();
    /* Another one, when nobody lies. */
    if (syscall(SYS_fork) != 0) {
        _exit(0);
    }
    nap_ms(100);
    OK(semctl(bystanders_set, 0, GETVAL));
    for (int i = 0; i < PIECES; i++) {
        EQUAL(attachments(ids[i]), 1 + i % 2);
        OK(shmctl(ids[i], IPC_RMID, NULL));
    }
    EQUAL(write(*(int *)told, "", 1), 1);
    _exit(0);
}

static void test_orphans_have_one_deadline(void) {
    begin();
    int ends[2];
    OK(pipe(ends));
    joined(child(leaves_an_orphan, &ends[1]), 0);
    close(ends[1]);
    char byte;
    EQUAL(read(ends[0], &byte, 1), 1);
    end();
}

/* A child that could not be counted in time keeps what it has, though its parent goes on without.
 */
static void test_a_child_that_is_not_counted_has_its_memory(void) {
    begin();
    segment = (int)OK(shmget(IPC_PRIVATE, PAGE, 0600));
    char *text = shmat(segment, NULL, 0);
    CHECK(text != (void *)-1);
    strcpy(text, "kept");
    int ends[2];
    OK(pipe(ends));
    lie();
    const pid_t forked = (pid_t)OK(fork());
    if (forked == 0) {
        char byte;
        close(ends[1]);
        _exit(read(ends[0], &byte, 1) != 0 || strcmp(text, "kept") != 0);
    }
    lift();
    OK(shmctl(segment, IPC_RMID, NULL));
    EQUAL(attachments(segment), 1);
    OK(shmdt(text));
    EQUAL(attachments(segment), 0);
    close(ends[1]);
    joined(forked, 0);
    struct shmid_ds ds;
    FAILS(shmctl(segment, IPC_STAT, &ds), EINVAL);
    end();
}

/* The last one to have a removed segment attached gives its memory back, and no other's, whatever
 * the pool says of its length. */
static void test_forged_lengths_give_nothing_back(void) {
    begin();
    const int other = (int)OK(shmget(IPC_PRIVATE, PAGE, 0600));
    char *text = shmat(other, NULL, 0);
    CHECK(text != (void *)-1);
    strcpy(text, "kept");
    segment = (int)OK(shmget(IPC_PRIVATE, 4096 * PAGE, 0600));
    char *mine = shmat(segment, NULL, 0);
    CHECK(mine != (void *)-1);
    OK(shmctl(segment, IPC_RMID, NULL));
    const uint64_t at = entry(SEGMENTS, 128, segment);
    /* As many pages as there are, from the first one on. */
    *word(at + 40) = 0;
    *word(at + 48) = *word(32 + 23 * 8);
    *word(at + 56) = *word(32 + 23 * 8) * PAGE;
    OK(shmdt(mine));
    CHECK(strcmp(text, "kept") == 0);
    OK(shmdt(text));
}

TESTS({"threads wait side by side", test_threads_wait_side_by_side},
      {"a process ends beside its threads", test_a_process_ends_beside_its_threads},
      {"signals are handled at once", test_signals_are_handled_at_once},
      {"pieces have one deadline", test_pieces_have_one_deadline},
      {"orphans have one deadline", test_orphans_have_one_deadline},
      {"a child that is not counted has its memory",
       test_a_child_that_is_not_counted_has_its_memory},
      {"forged lengths give nothing back", test_forged_lengths_give_nothing_back})
