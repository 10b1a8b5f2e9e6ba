/* A program of -fsanitize=address or thread: threads use IPC objects at once, and none of what they
 * do is a race. */
#include "capi.h"
#include <pthread.h>

enum { THREADS = 4, ROUNDS = 300 };

static int set, queue;

static void *work(void *unused) {
    (void)unused;
    for (int round = 0; round < ROUNDS; round++) {
        struct {
            long type;
            char text[3000];
        } letter = {1, {0}};
        CHECK(semop(set, OP(0, 1, SEM_UNDO), 1) == 0);
        CHECK(msgsnd(queue, &letter, round * 10, 0) == 0);
        CHECK(semop(set, OP(0, -1, SEM_UNDO), 1) == 0);
        CHECK(msgrcv(queue, &letter, sizeof letter.text, 0, 0) != -1);
        int own_set = semget(IPC_PRIVATE, 2, 0600), own_queue = msgget(IPC_PRIVATE, 0600);
        CHECK(own_set != -1 && semctl(own_set, 0, IPC_RMID) == 0);
        CHECK(own_queue != -1 && msgctl(own_queue, IPC_RMID, NULL) == 0);
    }
    return NULL;
}

int main(void) {
    int segment = shmget(IPC_PRIVATE, 1 << 20, 0600);
    char *at = shmat(segment, NULL, 0);
    CHECK(segment != -1 && at != (char *)-1);
    memset(at, 1, 1 << 20);
    CHECK(attachments(segment) == 1 && shmctl(segment, IPC_RMID, NULL) == 0);
    set = semget(IPC_PRIVATE, 1, 0600), queue = msgget(IPC_PRIVATE, 0600);
    CHECK(set != -1 && queue != -1);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, work, NULL) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    /* The runtime's, which locks nothing. */
    CHECK(mlockall(MCL_CURRENT) == 0);
    pid_t child = fork();
    if (child == 0)
        _exit(semop(set, OP(0, 1, 0), 1) != 0);
    wait_for_success(child);
    CHECK(semctl(set, 0, GETVAL, 0) == 1 && semctl(set, 0, IPC_RMID) == 0);
    CHECK(msgctl(queue, IPC_RMID, NULL) == 0);
    return 0;
}
