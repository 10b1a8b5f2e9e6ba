/* Barriers and reductions, between processes and threads, and when a party dies. */
#include "capi.h"
#include <pthread.h>
#include <vshmem.h>

enum { KEY = 0xba2, PARTIES = 4, ROUNDS = 3000, VALUES = 5000 };

struct shared {
    int arrived[ROUNDS + 1];
    int last[ROUNDS + 1];
};

static void rounds(struct shared *shared) {
    vshm_barrier *barrier = vshm_barrier_open(KEY, PARTIES);
    CHECK(barrier != NULL);
    int seat = vshm_barrier_seat(barrier);
    CHECK(seat >= 0 && seat < PARTIES);
    for (int i = 0; i < ROUNDS; i++) {
        __atomic_fetch_add(&shared->arrived[i], 1, __ATOMIC_RELAXED);
        int last = vshm_barrier_wait(barrier, NULL);
        CHECK(last == 0 || last == 1);
        __atomic_fetch_add(&shared->last[i], last, __ATOMIC_RELAXED);
        CHECK(__atomic_load_n(&shared->arrived[i], __ATOMIC_RELAXED) == PARTIES);
        /* Nobody is two rounds ahead. */
        CHECK(i + 2 > ROUNDS || __atomic_load_n(&shared->arrived[i + 2 > ROUNDS ? i : i + 2],
                                                __ATOMIC_RELAXED) < PARTIES);
    }
    CHECK(vshm_barrier_wait(barrier, NULL) >= 0);
    CHECK(vshm_barrier_close(barrier) == 0);
}

static void reductions(void) {
    vshm_barrier *barrier = vshm_barrier_open(KEY, PARTIES);
    CHECK(barrier != NULL);
    int seat = vshm_barrier_seat(barrier);
    double *d = malloc(VALUES * sizeof *d);
    int64_t *n = malloc(VALUES * sizeof *n);
    for (int step = 0; step < 3; step++) {
        for (int i = 0; i < VALUES; i++) {
            d[i] = i / 3.0 + seat * 0.1;
            n[i] = (int64_t)i * (seat - 1) + step;
        }
        CHECK(vshm_reduce_double(barrier, d, VALUES, VSHM_SUM, NULL) == 0);
        CHECK(vshm_reduce_int64(barrier, n, VALUES, step, NULL) == 0);
        for (int i = 0; i < VALUES; i++) {
            double sum = i / 3.0 + 0.0 * 0.1;
            for (int s = 1; s < PARTIES; s++)
                sum += i / 3.0 + s * 0.1;
            int64_t expected = step == VSHM_SUM   ? (int64_t)i * (PARTIES * (PARTIES - 1) / 2 - 4)
                               : step == VSHM_MIN ? -(int64_t)i + step
                                                  : (int64_t)i * (PARTIES - 2) + step;
            CHECK(d[i] == sum && n[i] == expected);
        }
        CHECK(vshm_reduce_double(barrier, d, 0, VSHM_MAX, NULL) == 0);
    }
    FAILS(vshm_reduce_double(barrier, d, 1, 3, NULL), EINVAL);
    FAILS(vshm_reduce_double(barrier, (double *)8, 1, VSHM_SUM, NULL), EFAULT);
    CHECK(vshm_barrier_close(barrier) == 0);
    free(d);
    free(n);
}

static void by_processes(void (*what)(struct shared *), struct shared *shared) {
    pid_t children[PARTIES];
    for (int i = 0; i < PARTIES; i++)
        if ((children[i] = fork()) == 0) {
            what(shared);
            exit(0);
        }
    for (int i = 0; i < PARTIES; i++)
        wait_for_success(children[i]);
}

static void reduce(struct shared *shared) {
    (void)shared;
    reductions();
}

static void *thread(void *shared) {
    rounds(shared);
    return NULL;
}

static void by_threads(struct shared *shared) {
    pthread_t threads[PARTIES];
    for (int i = 0; i < PARTIES; i++)
        CHECK(pthread_create(&threads[i], NULL, thread, shared) == 0);
    for (int i = 0; i < PARTIES; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

static void check_rounds(struct shared *shared) {
    for (int i = 0; i < ROUNDS; i++)
        CHECK(shared->arrived[i] == PARTIES && shared->last[i] == 1);
    memset(shared, 0, sizeof *shared);
}

static void trouble(void) {
    struct timespec soon = {0, 30 * 1000 * 1000}, wrong = {0, -1};
    FAILS((long)vshm_barrier_open(IPC_PRIVATE, 2) == 0 ? -1 : 0, EINVAL);
    FAILS((long)vshm_barrier_open(KEY + 1, 0) == 0 ? -1 : 0, EINVAL);
    FAILS((long)vshm_barrier_open(KEY, PARTIES + 1) == 0 ? -1 : 0, EINVAL);
    vshm_barrier *one = vshm_barrier_open(KEY + 1, 2);
    CHECK(one != NULL);
    FAILS(vshm_barrier_wait(one, &soon), ETIMEDOUT);
    FAILS(vshm_barrier_wait(one, &wrong), EINVAL);
    FAILS(vshm_barrier_wait(NULL, &soon), EFAULT);
    /* Whoever timed out had not arrived: both are needed. */
    pid_t child = fork();
    if (child == 0) {
        vshm_barrier *two = vshm_barrier_open(KEY + 1, 2);
        CHECK(two != NULL && vshm_barrier_wait(two, NULL) >= 0);
        FAILS((long)vshm_barrier_open(KEY + 1, 2) == 0 ? -1 : 0, EBUSY);
        raise(SIGKILL);
    }
    CHECK(vshm_barrier_wait(one, NULL) >= 0);
    CHECK(waitpid(child, NULL, 0) == child);
    FAILS(vshm_barrier_wait(one, NULL), EOWNERDEAD);
    /* The seat of the dead is free again. */
    child = fork();
    if (child == 0) {
        vshm_barrier *two = vshm_barrier_open(KEY + 1, 2);
        CHECK(two != NULL && vshm_barrier_wait(two, NULL) >= 0 && vshm_barrier_close(two) == 0);
        exit(0);
    }
    while (vshm_barrier_wait(one, NULL) == -1)
        CHECK(errno == EOWNERDEAD);
    wait_for_success(child);
    CHECK(vshm_barrier_close(one) == 0);
    GIVES(vshm_barrier_remove(KEY + 1), 0);
    FAILS(vshm_barrier_remove(KEY + 1), ENOENT);
    /* A segment that is no barrier stays. */
    int segment = vshm_shmget(KEY + 1, 100000, IPC_CREAT | 0600);
    FAILS(vshm_barrier_remove(KEY + 1), EINVAL);
    CHECK(vshm_shmget(KEY + 1, 0, 0) == segment);
    GIVES(vshm_shmctl(segment, IPC_RMID, NULL), 0);
}

static pid_t party(int key, const struct timespec *timeout, int expected) {
    pid_t child = fork();
    if (child == 0) {
        vshm_barrier *barrier = vshm_barrier_open(key, 3);
        CHECK(barrier != NULL);
        int result;
        do
            result = vshm_barrier_wait(barrier, timeout);
        while (result < 0 && errno == EOWNERDEAD);
        CHECK(expected == 0 ? result >= 0 : result == -1 && errno == expected);
        CHECK(vshm_barrier_close(barrier) == 0);
        exit(0);
    }
    return child;
}

/* A party of three that dies while it waits has not arrived for who takes its seat. */
static void replaced(void) {
    struct timespec soon = {0, 600 * 1000 * 1000};
    for (int round = 0; round < 5; round++) {
        /* With another one that waits on: who lives has arrived still. */
        pid_t dead = party(KEY + 2, NULL, 0), waits = round % 2 ? party(KEY + 2, NULL, 0) : 0;
        usleep(100 * 1000);
        kill(dead, SIGKILL);
        CHECK(waitpid(dead, NULL, 0) == dead);
        vshm_barrier *heir = vshm_barrier_open(KEY + 2, 3);
        CHECK(heir != NULL);
        pid_t second = waits ? 0 : party(KEY + 2, &soon, ETIMEDOUT);
        FAILS(vshm_barrier_wait(heir, &soon), ETIMEDOUT);
        if (second)
            wait_for_success(second);
        /* Now all three. */
        pid_t third = party(KEY + 2, NULL, 0);
        if (!waits)
            waits = party(KEY + 2, NULL, 0);
        int result;
        while ((result = vshm_barrier_wait(heir, NULL)) == -1)
            CHECK(errno == EOWNERDEAD);
        wait_for_success(waits);
        wait_for_success(third);
        CHECK(vshm_barrier_close(heir) == 0);
    }
    GIVES(vshm_barrier_remove(KEY + 2), 0);
}

/* Of two parties that come and go, each finds a seat: the other has one at the most. */
static void come_and_go(void) {
    const int seconds = 1;
    time_t end = time(NULL) + 1 + seconds;
    pid_t lanes[2];
    for (int lane = 0; lane < 2; lane++) {
        if ((lanes[lane] = fork()) != 0)
            continue;
        for (int i = 0; time(NULL) < end; i++) {
            pid_t party = fork();
            if (party == 0) {
                vshm_barrier *barrier = vshm_barrier_open(KEY + 2, 2);
                /* Every other one leaves its seat to those who find it dead. */
                _exit(barrier == NULL ? errno : i % 2 == 0 ? vshm_barrier_close(barrier) : 0);
            }
            int status;
            CHECK(waitpid(party, &status, 0) == party);
            GIVES(status, 0);
        }
        _exit(0);
    }
    for (int lane = 0; lane < 2; lane++) {
        int status;
        CHECK(waitpid(lanes[lane], &status, 0) == lanes[lane] && status == 0);
    }
    GIVES(vshm_barrier_remove(KEY + 2), 0);
}

static double milliseconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* Parties that sleep are woken: by themselves they look four times a second. */
static void sleepers(void) {
    enum { TIMES = 40, NAP = 20 };
    pid_t children[PARTIES - 1];
    for (int i = 0; i < PARTIES - 1; i++)
        if ((children[i] = fork()) == 0) {
            vshm_barrier *barrier = vshm_barrier_open(KEY + 4, PARTIES);
            CHECK(barrier != NULL);
            for (int round = 0; round < TIMES; round++) {
                /* Now all sleep, now some are still on their way there. */
                usleep((useconds_t)(round % 4 * i * 300));
                CHECK(vshm_barrier_wait(barrier, NULL) >= 0);
            }
            _exit(0);
        }
    vshm_barrier *barrier = vshm_barrier_open(KEY + 4, PARTIES);
    CHECK(barrier != NULL);
    int slow = 0;
    for (int round = 0; round < TIMES; round++) {
        double before = milliseconds();
        nap_ms(round % 2 ? NAP : 1);
        CHECK(vshm_barrier_wait(barrier, NULL) >= 0);
        slow += milliseconds() - before > 200;
    }
    /* A busy machine makes a few slow. */
    CHECK(slow < TIMES / 4);
    for (int i = 0; i < PARTIES - 1; i++)
        wait_for_success(children[i]);
    CHECK(vshm_barrier_close(barrier) == 0);
    GIVES(vshm_barrier_remove(KEY + 4), 0);
}

/* A barrier of version 0.2.0, whose parties wake and sleep otherwise, is refused, but can be
 * removed. */
static void another_version(void) {
    int segment = vshm_shmget(KEY + 5, 200000, IPC_CREAT | 0600);
    uint32_t *head = vshm_shmat(segment, NULL, 0);
    CHECK(head != (void *)-1);
    head[0] = 0x56534231, head[1] = 2;
    FAILS((long)vshm_barrier_open(KEY + 5, 2) == 0 ? -1 : 0, EINVAL);
    CHECK(strstr(vshm_last_error(), "version") != NULL);
    GIVES(vshm_barrier_remove(KEY + 5), 0);
    CHECK(vshm_shmdt(head) == 0);
}

int main(void) {
    struct shared *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    by_processes(rounds, shared);
    check_rounds(shared);
    by_threads(shared);
    check_rounds(shared);
    by_processes(reduce, shared);
    trouble();
    replaced();
    come_and_go();
    sleepers();
    another_version();
    GIVES(vshm_barrier_remove(KEY), 0);
    return 0;
}
