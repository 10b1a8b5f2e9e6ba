/* Which pool it is, which kernel, and which processes of it live. Argument: a folder for pools. */
#include "check.h"
#include <sched.h>
#include <vshmem.h>

enum { UUID_AT = 320, FEATURES_AT = 16 };

static void read_at(const char *path, long at, void *to, size_t size) {
    const int file = open(path, O_RDONLY);
    CHECK(file >= 0 && pread(file, to, size, at) == (ssize_t)size && close(file) == 0);
}

static vshm_pool *use(const char *path) {
    vshm_pool *pool = vshm_pool_open(path);
    CHECK(pool != NULL && vshm_pool_use(pool) == 0);
    return pool;
}

/* Each pool has its own, which is in its file. */
static void uuids(const char *folder) {
    char path[2][256];
    uint8_t uuid[2][16], again[16], written[16];
    vshm_pool *pool[2];
    for (int i = 0; i < 2; i++) {
        snprintf(path[i], sizeof path[i], "%s/pool-%d", folder, i);
        CHECK(vshm_pool_create(path[i], 1 << 20, 0600) == 0);
        pool[i] = use(path[i]);
        GIVES(vshm_pool_uuid(uuid[i]), 0);
        read_at(path[i], UUID_AT, written, sizeof written);
        CHECK(memcmp(uuid[i], written, sizeof written) == 0);
        CHECK(uuid[i][6] >> 4 == 4 && uuid[i][8] >> 6 == 2);
    }
    CHECK(memcmp(uuid[0], uuid[1], 16) != 0);
    FAILS(vshm_pool_uuid(NULL), EFAULT);
    GIVES(vshm_pool_use(pool[0]), 0);
    const pid_t child = fork();
    if (child == 0)
        exit(vshm_pool_uuid(again) != 0 || memcmp(again, uuid[0], 16) != 0);
    wait_for_success(child);

    /* A pool of an older version: without the feature bit. */
    GIVES(vshm_pool_use(NULL), 0);
    GIVES(vshm_pool_close(pool[1]), 0);
    const int file = open(path[1], O_WRONLY);
    CHECK(file >= 0 && pwrite(file, &(uint32_t){0}, 4, FEATURES_AT) == 4 && close(file) == 0);
    pool[1] = use(path[1]);
    FAILS(vshm_pool_uuid(again), ENODATA);
    CHECK(strstr(vshm_last_error(), "vshm_pool_uuid: the pool has no UUID") == vshm_last_error());
    GIVES(vshm_pool_use(NULL), 0);
}

/* A process that uses the pool until it is killed. `apart`: as process 1 of a PID name space of its
 * own, whose parent ends with it. */
static pid_t user(int apart) {
    int ready[2];
    char byte;
    CHECK(pipe(ready) == 0);
    const pid_t child = fork();
    if (child == 0) {
        if (apart) {
            const pid_t first = unshare(CLONE_NEWUSER | CLONE_NEWPID) == 0 ? fork() : -1;
            if (first != 0)
                _exit(first < 0 || waitpid(first, NULL, 0) != first);
            CHECK(getpid() == 1);
        }
        CHECK(vshm_pool_member() == 0 && vshm_process_lives(getpid()) == 1);
        CHECK(write(ready[1], "", 1) == 1);
        for (;;)
            pause();
    }
    close(ready[1]);
    const int is_ready = read(ready[0], &byte, 1) == 1;
    close(ready[0]);
    if (!is_ready)
        waitpid(child, NULL, 0);
    return is_ready ? child : -1;
}

static void end(pid_t child) {
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
}

/* The only child of a process. */
static pid_t child_of(pid_t parent) {
    char path[64], line[32] = "";
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)parent, (int)parent);
    FILE *file = fopen(path, "r");
    CHECK(file != NULL && fgets(line, sizeof line, file) != NULL && fclose(file) == 0);
    return (pid_t)atoi(line);
}

static void processes(void) {
    GIVES(vshm_pool_member(), 0);
    GIVES(vshm_process_lives(getpid()), 1);
    GIVES(vshm_process_lives(getppid()), 0); /* lives, but has nothing to do with the pool */
    FAILS(vshm_process_lives(0), EINVAL);
    FAILS(vshm_process_lives(-getpid()), EINVAL);
    const pid_t child = user(0);
    GIVES(vshm_process_lives(child), 1);
    end(child);
    GIVES(vshm_process_lives(child), 0);
}

/* Two processes have the same pid, in two name spaces: it lives as long as one of them does. */
static void name_spaces(void) {
    GIVES(vshm_process_lives(1), 0);
    const pid_t one = user(1);
    if (one < 0) {
        puts("no name spaces: two processes of one pid are left out");
        return;
    }
    const pid_t two = user(1);
    CHECK(two > 0);
    GIVES(vshm_process_lives(1), 1);
    kill(child_of(one), SIGKILL);
    wait_for_success(one);
    GIVES(vshm_process_lives(1), 1);
    kill(child_of(two), SIGKILL);
    wait_for_success(two);
    GIVES(vshm_process_lives(1), 0);
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    uuids(arguments[1]);
    processes();
    name_spaces();
    GIVES(vshm_takes_key(IPC_PRIVATE), 1);
    return 0;
}
