/* The pool can't be had: every call fails with the errno (first argument), and the reason has the
 * text (second one). */
#include "capi.h"
#include <dlfcn.h>

int main(int count, char **arguments) {
    CHECK(count == 3);
    const char *(*last_error)(void);
    *(void **)&last_error = dlsym(RTLD_DEFAULT, "vshm_last_error");
    CHECK(last_error != NULL);
    int error = atoi(arguments[1]);
    for (int i = 0; i < 2; i++) {
        errno = 0;
        CHECK(semget(IPC_PRIVATE, 1, 0600) == -1);
        if (errno != error || strstr(last_error(), arguments[2]) == NULL) {
            fprintf(stderr, "errno %d (%s), %s\n", errno, strerror(errno), last_error());
            return 1;
        }
        FAILS(msgget(5, IPC_CREAT | 0600), error);
        FAILS(shmget(5, 4096, IPC_CREAT | 0600), error);
        /* The reason names the pool. */
        CHECK(strstr(last_error(), getenv("VSHMEM_POOL")) != NULL);
        FAILS(semop(0x40000000, OP(0, 1, 0), 1), error);
        FAILS((long)shmat(0x40000000, NULL, 0), error);
        FAILS(shmdt(&count), EINVAL);
    }
    return 0;
}
