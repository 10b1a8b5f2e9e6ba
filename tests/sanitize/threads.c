// SPDX-License-Identifier: MIT OR Apache-2.0
/* Threads of one process that keep each other from plain memory by semaphores, and hand it on in
 * messages. Whoever watches them (ThreadSanitizer) must see that each access comes after the one
 * before: that is the order which semop, msgsnd and msgrcv promise. With an argument, nobody keeps
 * anybody from it, and that must be seen. */
#include "../conformance/tests.h"
#include <pthread.h>

/* What Rust's compiler calls and the runtime of an older gcc does not have; the runtime watches
 * what these call. */
void *__tsan_memcpy(void *to, const void *from, size_t size) { return memcpy(to, from, size); }
void *__tsan_memmove(void *to, const void *from, size_t size) { return memmove(to, from, size); }
void *__tsan_memset(void *to, int byte, size_t size) { return memset(to, byte, size); }

enum { THREADS = 4, ROUNDS = 3000, LONG = 900 };

static int set, queue, careless;
static long guarded[2];

struct letter {
    long type;
    struct {
        long *news;
        char rest[LONG];
    } text;
};

/* The first semaphore by itself, which takes the fast path, and both at once, which can't. */
static void *change(void *unused) {
    struct sembuf take[2] = {{0, -1, SEM_UNDO}, {1, -1, 0}};
    struct sembuf give[2] = {{0, 1, SEM_UNDO}, {1, 1, 0}};
    for (int i = 0; i < ROUNDS; i++) {
        size_t count = i % 8 == 0 ? 2 : 1;
        if (!careless)
            OK(semop(set, take, count));
        guarded[0]++;
        if (count == 2)
            guarded[1]++;
        if (!careless)
            OK(semop(set, give, count));
    }
    return unused;
}

/* Short ones and long ones, of which few fit, so that both sides wait. */
static void *post(void *unused) {
    for (int i = 0; i < ROUNDS; i++) {
        struct letter letter = {1, {malloc(sizeof(long)), {0}}};
        *letter.text.news = i;
        OK(msgsnd(queue, &letter, sizeof(long *) + (i % 3 == 0 ? LONG : 0), 0));
    }
    return unused;
}

static void *receive(void *sum) {
    for (int i = 0; i < ROUNDS; i++) {
        struct letter letter;
        OK(msgrcv(queue, &letter, sizeof letter.text, 0, 0));
        *(long *)sum += *letter.text.news;
        *letter.text.news = -1;
        free(letter.text.news);
    }
    return NULL;
}

static void run(int count, void *(*work)(void *), void *(*other)(void *)) {
    pthread_t threads[2 * THREADS];
    static long sums[THREADS];
    for (int i = 0; i < count; i++) {
        EQUAL(pthread_create(&threads[2 * i], NULL, work, NULL), 0);
        EQUAL(pthread_create(&threads[2 * i + 1], NULL, other, &sums[i]), 0);
    }
    for (int i = 0; i < 2 * count; i++)
        EQUAL(pthread_join(threads[i], NULL), 0);
}

int main(int argc, char **argv) {
    (void)argv;
    careless = argc > 1;
    set = (int)OK(semget(IPC_PRIVATE, 2, 0600));
    queue = (int)OK(msgget(IPC_PRIVATE, 0600));
    OK(semctl(set, 0, SETALL, (union semun){.array = (unsigned short[]){1, 1}}));
    run(THREADS / 2, change, change);
    if (!careless) {
        EQUAL(guarded[0], (long)THREADS * ROUNDS);
        EQUAL(guarded[1], (long)THREADS * ROUNDS / 8);
        run(THREADS, post, receive);
    }
    OK(semctl(set, 0, IPC_RMID));
    OK(msgctl(queue, IPC_RMID, NULL));
    puts("done");
    return 0;
}
