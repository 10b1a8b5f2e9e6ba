/* A short wait is no sleep. Threads, and processes, that attach and detach at once get into each
 * other's way for microseconds: whoever watches them, such as a test that waits until a process
 * sleeps in semop, must not see them asleep. A sleep is a voluntary context switch. */
#include "capi.h"
#include <pthread.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/wait.h>

enum { THREADS = 6, CALLS = 3000, FEW = 40 };

static int segment;

static void *attach(void *unused) {
    (void)unused;
    for (int i = 0; i < CALLS; i++) {
        void *at = shmat(segment, NULL, 0);
        CHECK(at != (void *)-1);
        CHECK(shmdt(at) == 0);
    }
    return NULL;
}

static void threads(void) {
    pthread_t others[THREADS];
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&others[i], NULL, attach, NULL) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(others[i], NULL) == 0);
}

/* How often a child that does this has slept. */
static long sleeps(void (*work)(void)) {
    pid_t child = fork();
    if (child == 0) {
        work();
        exit(0);
    }
    struct rusage usage;
    int status;
    CHECK(wait4(child, &status, 0, &usage) == child && status == 0);
    return usage.ru_nvcsw;
}

static void one(void) { attach(NULL); }

int main(void) {
    segment = shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600);
    CHECK(segment >= 0);
    /* Both at once, so that they meet. */
    pid_t other = fork();
    if (other == 0) {
        long slept = sleeps(one);
        printf("a process slept %ld times in %d calls\n", slept, 2 * CALLS);
        exit(slept > FEW);
    }
    long slept = sleeps(one);
    CHECK(slept <= FEW);
    int status;
    CHECK(waitpid(other, &status, 0) == other && status == 0);
    slept = sleeps(threads);
    printf("%d threads slept %ld times in %d calls\n", THREADS, slept, 2 * THREADS * CALLS);
    CHECK(slept <= FEW);
    CHECK(shmctl(segment, IPC_RMID, NULL) == 0);
    return 0;
}
