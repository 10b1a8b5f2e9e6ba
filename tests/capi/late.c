/* The library loaded late, by dlopen (argument), as a language's foreign function interface does;
 * then unloaded. */
#include "capi.h"
#include <dlfcn.h>
#include <pthread.h>

static int (*sem_get)(key_t, int, int), (*sem_op)(int, struct sembuf *, size_t);
static int (*sem_ctl)(int, int, int, ...);
static const char *(*last_error)(void);
static int set;

static void *in_thread(void *arg) {
    CHECK(strcmp(last_error(), "") == 0);
    GIVES(sem_op(set, OP(0, 1, SEM_UNDO), 1), 0);
    FAILS(sem_op(set, OP(9, 1, 0), 1), EFBIG);
    CHECK(strncmp(last_error(), "vshm_semop: ", 12) == 0);
    return arg;
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    void *library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
    if (!library)
        fprintf(stderr, "%s\n", dlerror());
    CHECK(library != NULL);
    *(void **)&sem_get = dlsym(library, "vshm_semget");
    *(void **)&sem_op = dlsym(library, "vshm_semop");
    *(void **)&sem_ctl = dlsym(library, "vshm_semctl");
    *(void **)&last_error = dlsym(library, "vshm_last_error");
    CHECK(sem_get && sem_op && sem_ctl && last_error);
    set = sem_get(IPC_PRIVATE, 1, 0600);
    CHECK(set >= 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, in_thread, NULL) == 0 && pthread_join(thread, NULL) == 0);
    pid_t child = fork();
    if (child == 0) {
        GIVES(sem_op(set, OP(0, -1, 0), 1), 0);
        exit(0);
    }
    wait_for_success(child);
    /* Its handlers for fork and exit stay. */
    CHECK(dlclose(library) == 0);
    child = fork();
    if (child == 0)
        exit(0);
    wait_for_success(child);
    GIVES(sem_ctl(set, 0, GETVAL), 0);
    return 0;
}
