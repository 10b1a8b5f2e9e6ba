/* Calls that fail for reasons that their errno does not tell. With a pool of 4 MiB that has at most
 * three queues. */
#include "capi.h"

static void as_another_user(int set) {
    pid_t child = fork();
    if (child == 0) {
        if (seteuid(20001) != 0)
            _exit(1);
        FAILS(msgget(8, 0600), EACCES);
        FAILS(semop(set, OP(0, 1, 0), 1), EACCES);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int main(void) {
    FAILS(shmget(5, 64 << 20, IPC_CREAT | 0600), ENOMEM);
    /* Programs ask for huge pages, and go on without: nothing is said. */
    CHECK(shmget(5, 4096, IPC_CREAT | SHM_HUGETLB | 0600) == -1);
    CHECK(shmget(6, 4096, IPC_CREAT | 0600) >= 0);
    FAILS(shmget(6, 8192, IPC_CREAT | 0600), EINVAL);
    int set = semget(7, 2, IPC_CREAT | 0600);
    CHECK(set >= 0);
    FAILS(semget(7, 3, 0600), EINVAL);
    FAILS(semget(9, -1, IPC_CREAT | 0600), EINVAL);
    CHECK(msgget(8, IPC_CREAT | 0600) >= 0);
    CHECK(msgget(IPC_PRIVATE, 0600) >= 0 && msgget(IPC_PRIVATE, 0600) >= 0);
    FAILS(msgget(IPC_PRIVATE, 0600), ENOSPC);
    if (geteuid() == 0)
        as_another_user(set);
    return 0;
}
