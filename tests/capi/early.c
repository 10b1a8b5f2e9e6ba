/* Calls from a constructor before main, from a thread, from exit handlers and from destructors. */
#include "capi.h"
#include <pthread.h>

static int set;

__attribute__((constructor)) static void before_main(void) {
    set = semget(IPC_PRIVATE, 1, 0600);
    CHECK(set >= 0);
    GIVES(semop(set, OP(0, 1, SEM_UNDO), 1), 0);
}

static void at_exit(void) {
    GIVES(semop(set, OP(0, 1, SEM_UNDO), 1), 0);
    GIVES(semctl(set, 0, GETVAL, 0), 3);
}

__attribute__((destructor)) static void after_main(void) {
    GIVES(semop(set, OP(0, -3, 0), 1), 0);
    GIVES(semctl(set, 0, IPC_RMID, 0), 0);
}

static void *in_thread(void *arg) {
    GIVES(semop(set, OP(0, 1, SEM_UNDO), 1), 0);
    return arg;
}

int main(void) {
    pthread_t thread;
    CHECK(atexit(at_exit) == 0);
    CHECK(pthread_create(&thread, NULL, in_thread, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    GIVES(semctl(set, 0, GETVAL, 0), 2);
    return 0;
}
