/* vshm_pool_*: several pools in one process. Argument: a folder for them. */
#include "check.h"
#include <vshmem.h>

enum { KEY = 0x900 };
static char path[8][256];

static int set_in(vshm_pool *pool, int value) {
    CHECK(vshm_pool_use(pool) == 0);
    int id = vshm_semget(KEY, 1, IPC_CREAT | 0600);
    CHECK(id >= 0 && vshm_semctl(id, 0, SETVAL, value) == 0);
    return id;
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    for (int i = 0; i < 8; i++)
        snprintf(path[i], sizeof path[i], "%s/pool-%d", arguments[1], i);

    CHECK(strcmp(vshm_version(), VERSION) == 0);
    CHECK(strcmp(vshm_last_error(), "") == 0);
    errno = 0;
    CHECK(vshm_pool_open(path[0]) == NULL && errno == ENOENT);
    CHECK(strstr(vshm_last_error(), "vshm_pool_open: ") == vshm_last_error());
    CHECK(strstr(vshm_last_error(), path[0]) != NULL);
    FAILS(vshm_pool_create(path[0], 1000, 0600), EINVAL);
    FAILS(vshm_pool_create("no name", 1 << 20, 0600), EINVAL);
    FAILS(vshm_pool_create(NULL, 1 << 20, 0600), EFAULT);
    umask(077);
    vshm_pool *pools[8];
    for (int i = 0; i < 8; i++) {
        struct stat stat_;
        GIVES(vshm_pool_create(path[i], 4 << 20, 0640), 0);
        FAILS(vshm_pool_create(path[i], 4 << 20, 0600), EEXIST);
        CHECK(stat(path[i], &stat_) == 0 && (stat_.st_mode & 0777) == 0640);
        CHECK(stat_.st_size == 4 << 20);
        pools[i] = vshm_pool_open(path[i]);
        CHECK((pools[i] != NULL) == (i < 7));
    }
    CHECK(errno == EMFILE);
    FAILS(vshm_pool_use((vshm_pool *)pools), EINVAL);

    /* The same key and even the same id, but other IPC objects. */
    int first = set_in(pools[0], 10), second = set_in(pools[1], 11);
    CHECK(first == second);
    CHECK(vshm_semctl(second, 0, GETVAL) == 11);
    CHECK(vshm_pool_use(pools[0]) == 0 && vshm_semctl(first, 0, GETVAL) == 10);

    /* An attachment knows its pool. */
    int segment = vshm_shmget(KEY, 4096, IPC_CREAT | 0600);
    char *p = vshm_shmat(segment, NULL, 0);
    CHECK(p != (void *)-1);
    FAILS(vshm_pool_close(pools[0]), EBUSY);
    GIVES(vshm_pool_use(pools[1]), 0);
    FAILS(vshm_pool_close(pools[0]), EBUSY);
    GIVES(vshm_shmdt(p), 0);
    CHECK(vshm_pool_use(pools[0]) == 0);
    CHECK(vshm_semop(first, OP(0, -4, SEM_UNDO), 1) == 0);
    CHECK(vshm_pool_use(NULL) == 0);
    GIVES(vshm_pool_close(pools[0]), 0);
    FAILS(vshm_pool_close(pools[0]), EINVAL);
    FAILS(vshm_pool_use(pools[0]), EINVAL);

    /* Opened again it is the same pool, and the adjustment was undone. */
    pools[7] = vshm_pool_open(path[0]);
    CHECK(pools[7] != NULL && vshm_pool_use(pools[7]) == 0);
    CHECK(vshm_semget(KEY, 1, 0) == first && vshm_semctl(first, 0, GETVAL) == 10);

    /* A child has them open too. */
    pid_t child = fork();
    if (child == 0) {
        CHECK(vshm_semop(first, OP(0, -1, 0), 1) == 0 && vshm_pool_use(pools[1]) == 0);
        CHECK(vshm_semctl(second, 0, GETVAL) == 11);
        exit(0);
    }
    wait_for_success(child);
    CHECK(vshm_semctl(first, 0, GETVAL) == 9);

    /* What is no pool is refused with a reason. */
    FILE *file = fopen(path[7], "w");
    CHECK(file != NULL && ftruncate(fileno(file), 4 << 20) == 0 && fclose(file) == 0);
    CHECK(vshm_pool_use(NULL) == 0 && vshm_pool_close(pools[7]) == 0);
    CHECK(vshm_pool_open(path[7]) == NULL && errno == EINVAL);
    CHECK(strstr(vshm_last_error(), "not a pool") != NULL);
    return 0;
}
