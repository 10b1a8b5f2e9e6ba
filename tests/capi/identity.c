/* Which pool it is, which kernel, and which processes of it live. Argument: a folder for pools. */
#include "capi.h"
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

/* A process that uses the pool until it is killed: it has made two segments, and removed the first.
 * `apart`: as process 1 of a PID name space of its own, whose parent ends with it. */
struct user {
    pid_t pid;
    int segment[2];
};

static int is_first_apart(void) {
    const pid_t first = unshare(CLONE_NEWUSER | CLONE_NEWPID) == 0 ? fork() : -1;
    if (first != 0)
        _exit(first < 0 || waitpid(first, NULL, 0) != first);
    return getpid() == 1;
}

static int start(struct user *user, int apart) {
    int ready[2];
    CHECK(pipe(ready) == 0);
    user->pid = fork();
    CHECK(user->pid >= 0);
    if (user->pid == 0) {
        CHECK(!apart || is_first_apart());
        CHECK(vshm_pool_member() == 0 && vshm_process_lives(getpid()) == 1);
        int segment[2];
        for (int i = 0; i < 2; i++) {
            segment[i] = vshm_shmget(IPC_PRIVATE, 4096, 0666);
            CHECK(segment[i] >= 0 && vshm_shmat(segment[i], NULL, 0) != (void *)-1);
        }
        CHECK(vshm_shmctl(segment[0], IPC_RMID, NULL) == 0);
        CHECK(write(ready[1], segment, sizeof segment) == sizeof segment);
        for (;;)
            pause();
    }
    close(ready[1]);
    const int is_ready = read(ready[0], user->segment, sizeof user->segment) > 0;
    close(ready[0]);
    if (!is_ready)
        waitpid(user->pid, NULL, 0);
    return is_ready;
}

static void end(struct user *user) {
    CHECK(kill(user->pid, SIGKILL) == 0 && waitpid(user->pid, NULL, 0) == user->pid);
}

/* Ends one that is apart; its parent has nobody else. */
static void end_apart(struct user *user) {
    char path[64], line[32] = "";
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)user->pid, (int)user->pid);
    FILE *file = fopen(path, "r");
    CHECK(file != NULL && fgets(line, sizeof line, file) != NULL && fclose(file) == 0);
    CHECK(kill((pid_t)atoi(line), SIGKILL) == 0);
    wait_for_success(user->pid);
}

static void processes(void) {
    GIVES(vshm_pool_member(), 0);
    GIVES(vshm_process_lives(getpid()), 1);
    GIVES(vshm_process_lives(getppid()), 0); /* lives, but has nothing to do with the pool */
    FAILS(vshm_process_lives(0), EINVAL);
    FAILS(vshm_process_lives(-getpid()), EINVAL);
    struct user child;
    CHECK(start(&child, 0));
    GIVES(vshm_process_lives(child.pid), 1);
    end(&child);
    GIVES(vshm_process_lives(child.pid), 0);
}

/* A process that has the pid 1, too, hears of the end of the one whose segment it attaches. */
static void hears_of_the_end(struct user *other) {
    int ready[2];
    char byte;
    CHECK(pipe(ready) == 0);
    const pid_t child = fork();
    if (child == 0) {
        const pid_t first = unshare(CLONE_NEWUSER | CLONE_NEWPID) == 0 ? fork() : -1;
        if (first != 0) {
            wait_for_success(first);
            exit(0);
        }
        CHECK(getpid() == 1 && vshm_shmat(other->segment[0], NULL, 0) != (void *)-1);
        CHECK(vshm_process_lives(1) == 1 && write(ready[1], "", 1) == 1);
        while (vshm_process_lives(1) == 1)
            nap_ms(1);
        exit(0);
    }
    close(ready[1]);
    CHECK(read(ready[0], &byte, 1) == 1 && close(ready[0]) == 0);
    end_apart(other);
    wait_for_success(child);
}

/* Several processes have the same pid, in name spaces of their own. */
static void name_spaces(void) {
    struct user one, two;
    GIVES(vshm_process_lives(1), 0);
    if (!start(&one, 1)) {
        puts("no name spaces: processes of one pid are left out");
        return;
    }
    CHECK(start(&two, 1));
    /* Those that this process has nothing to do with: it lives as long as one of them does. */
    GIVES(vshm_process_lives(1), 1);
    end_apart(&one);
    GIVES(vshm_process_lives(1), 1);
    end_apart(&two);
    GIVES(vshm_process_lives(1), 0);

    /* Peers: each has to live. */
    CHECK(start(&one, 1) && start(&two, 1));
    char *of_one = vshm_shmat(one.segment[0], NULL, 0),
         *of_two = vshm_shmat(two.segment[0], NULL, 0);
    CHECK(of_one != (void *)-1 && of_two != (void *)-1);
    GIVES(vshm_process_lives(1), 1);
    GIVES(vshm_process_lives(getpid()), 1);
    end_apart(&one);
    GIVES(vshm_process_lives(1), 0);
    GIVES(vshm_shmdt(of_one), 0);
    /* A segment that stays is read when its maker is long gone. */
    of_one = vshm_shmat(one.segment[1], NULL, 0);
    CHECK(of_one != (void *)-1);
    GIVES(vshm_process_lives(1), 1);
    GIVES(vshm_shmdt(of_one), 0);
    GIVES(vshm_shmdt(of_two), 0);
    hears_of_the_end(&two);
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
