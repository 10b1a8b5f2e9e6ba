/*
 * What libvshmem-ucx answers in UCX's place. Arguments: what asks, a library that is linked or
 * opened, and a folder for pools. With "answer" or "stay" instead of that it is one of several
 * processes.
 */
#include "capi.h"
#include "ucx/transport.h"
#include <dlfcn.h>
#include <sched.h>

static const char *self, *how;
static void (*asks)(struct answers *);
static unsigned long (*asks_start)(pid_t);
static int (*queries)(void *, struct ucp_worker_attr *);

static void find_transport(void) {
#ifdef LINKED
    asks = ask, asks_start = start_of, queries = query;
#else
    void *opened = dlopen(how, RTLD_NOW | RTLD_LOCAL);
    if (opened == NULL)
        fprintf(stderr, "%s\n", dlerror());
    CHECK(opened != NULL);
    asks = (void (*)(struct answers *))dlsym(opened, "ask");
    asks_start = (unsigned long (*)(pid_t))dlsym(opened, "start_of");
    queries = (int (*)(void *, struct ucp_worker_attr *))dlsym(opened, "query");
    CHECK(asks != NULL && asks_start != NULL && queries != NULL);
#endif
}

/* Another process of this program, in a pool, in name spaces of its own if `apart`: it then has the
 * pid 1. Returns what it writes; `child` goes on, if wanted, until it is killed. */
static int run(const char *pool, int apart, const char *part, pid_t *child, void *to, size_t size) {
    int ends[2];
    CHECK(pipe2(ends, O_CLOEXEC) == 0);
    const pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        if (apart) {
            const int spaces = CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS;
            const pid_t first = unshare(spaces) == 0 ? fork() : -1;
            if (first != 0) {
                int status;
                _exit(first < 0 || waitpid(first, &status, 0) != first || status != 0);
            }
        }
        CHECK(dup2(ends[1], 1) == 1 && setenv("VSHMEM_POOL", pool, 1) == 0);
        execl(self, self, how, part, NULL);
        _exit(127);
    }
    close(ends[1]);
    const ssize_t got = read(ends[0], to, size);
    close(ends[0]);
    if (child != NULL)
        *child = pid;
    else if (got == (ssize_t)size)
        wait_for_success(pid);
    else
        waitpid(pid, NULL, 0);
    return got == (ssize_t)size;
}

static struct answers answers(const char *pool, int apart) {
    struct answers found;
    CHECK(run(pool, apart, "answer", NULL, &found, sizeof found));
    return found;
}

/* What UCX's own functions say. */
static void is_ucx(const struct answers *found) {
    CHECK(found->id == 0x5ca1ab1e);
    for (int kind = 0; kind < KINDS; kind++)
        CHECK(found->initial[kind] == 100 + kind);
    struct stat own;
    CHECK(stat("/proc/self/ns/net", &own) == 0 && found->space[NET] == own.st_ino);
}

static int same_spaces(const struct answers *one, const struct answers *other) {
    return memcmp(one->space, other->space, sizeof one->space) == 0;
}

static void one_pool(const char *first, const char *second, int may_be_apart) {
    const struct answers one = answers(first, 0), other = answers(first, 0),
                         third = answers(second, 0);
    CHECK(one.id == other.id && one.id != third.id && third.id != 0x5ca1ab1e);
    CHECK(one.id >> 63 == 0 && one.id != 0 && third.id >> 63 == 0);
    CHECK(same_spaces(&one, &other));
    CHECK(one.space[IPC] == 0xefffffff && third.space[IPC] == 0xefffffff);
    for (int kind = 0; kind < KINDS; kind++) {
        CHECK(one.initial[kind] == (kind == IPC));
        /* An inode, which other kernels have, too, is shorter. */
        CHECK((one.space[kind] >> 32 != 0) == (kind != IPC));
    }
    if (!may_be_apart)
        return;
    const struct answers apart = answers(first, 1);
    CHECK(apart.id == one.id && apart.space[IPC] == one.space[IPC]);
    CHECK(apart.space[PID] != one.space[PID] && apart.space[UTS] != one.space[UTS]);
    CHECK(apart.space[NET] == one.space[NET] && apart.space[MNT] == one.space[MNT]);
}

/* Where the process's private segments go to no pool that has a UUID, nobody stands before UCX. */
static void no_pool(const char *pool, const char *library) {
    char log[300], line[320];
    struct answers found;
    snprintf(log, sizeof log, "%s.log", pool);

    const char *const keys[] = {"none", "5,0x100-0x1ff"};
    for (int i = 0; i < 2; i++) {
        CHECK(setenv("VSHMEM_KEYS", keys[i], 1) == 0);
        found = answers(pool, 0);
        is_ucx(&found);
    }
    unsetenv("VSHMEM_KEYS");

    CHECK(answers(pool, 0).id != 0x5ca1ab1e);
    const int file = open(pool, O_WRONLY);
    CHECK(file >= 0 && pwrite(file, &(uint32_t){0}, 4, 16) == 4 && close(file) == 0);
    snprintf(line, sizeof line, "warn:%s", log);
    CHECK(setenv("VSHMEM_LOG", line, 1) == 0);
    found = answers(pool, 0);
    is_ucx(&found);
    unsetenv("VSHMEM_LOG");
    FILE *said = fopen(log, "r");
    CHECK(said != NULL && fgets(line, sizeof line, said) != NULL);
    CHECK(strstr(line, "vshm_pool_uuid: the pool has no UUID") != NULL);
    CHECK(fgets(line, sizeof line, said) == NULL && fclose(said) == 0);

    /* Without libvshmem, and with one that was only opened. */
    char *preload = strdup(getenv("LD_PRELOAD"));
    CHECK(preload != NULL && setenv("LD_PRELOAD", strchr(preload, ' ') + 1, 1) == 0);
    unlink(pool);
    found = answers(pool, 0);
    is_ucx(&found);
    *strchr(preload, ' ') = '\0';
    CHECK(setenv("OPENED", preload, 1) == 0);
    found = answers(pool, 0);
    is_ucx(&found);
    CHECK(access(pool, F_OK) == -1);
    unsetenv("OPENED");
    CHECK(setenv("LD_PRELOAD", library, 1) == 0);
    free(preload);
}

static void end(pid_t child, int apart) {
    if (apart) {
        char path[64], line[32] = "";
        snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)child, (int)child);
        FILE *file = fopen(path, "r");
        CHECK(file != NULL && fgets(line, sizeof line, file) != NULL && fclose(file) == 0);
        CHECK(kill((pid_t)atoi(line), SIGKILL) == 0);
    } else {
        CHECK(kill(child, SIGKILL) == 0);
    }
    CHECK(waitpid(child, NULL, 0) == child);
}

/* A peer starts once, and is gone when it is dead, whoever of this kernel has its pid. This process
 * is in the first pool. */
static void peers(const char *first, const char *second, int may_be_apart) {
    pid_t child, other;
    char byte;
    CHECK(asks_start(getpid()) == 1);
    /* It is in no pool, or not in this one. */
    CHECK(asks_start(getppid()) == 1000 + (unsigned long)getppid());
    CHECK(run(second, 0, "stay", &child, &byte, 1));
    CHECK(asks_start(child) == 1000 + (unsigned long)child);
    end(child, 0);
    CHECK(asks_start(child) == 1000 + (unsigned long)child);
    CHECK(asks_start(-1) == 999 && asks_start(1 << 22) == 1000 + (1 << 22));

    CHECK(run(first, 0, "stay", &child, &byte, 1));
    CHECK(asks_start(child) == 1 && asks_start(child) == 1);
    end(child, 0);
    CHECK(asks_start(child) == 0 && asks_start(child) == 0);
    if (!may_be_apart)
        return;
    /* Of this kernel's process 1 UCX would say that it lives. */
    CHECK(asks_start(1) == 1001);
    CHECK(run(first, 1, "stay", &child, &byte, 1) && run(first, 1, "stay", &other, &byte, 1));
    CHECK(asks_start(1) == 1);
    end(child, 1);
    CHECK(asks_start(1) == 1);
    end(other, 1);
    CHECK(asks_start(1) == 0);
    CHECK(run(first, 1, "stay", &child, &byte, 1));
    CHECK(asks_start(1) == 1);
    end(child, 1);
}

/* A worker gives all of its addresses. */
static void worker(int in_pool) {
    int it;
    struct ucp_worker_attr attr = {FIELD_ADDRESS | FIELD_ADDRESS_FLAGS, 0, NET_ONLY | 2, NULL, 0};
    CHECK(queries(&it, &attr) == 0 && attr.address == &it);
    CHECK(attr.address_length == (6 << 8 | (in_pool ? 2 : 3)) &&
          attr.address_flags == (NET_ONLY | 2));
    /* Here they are no flags. */
    attr.field_mask = FIELD_ADDRESS;
    CHECK(queries(&it, &attr) == 0 && attr.address_length == (2 << 8 | 3));
}

static void part(const char *name) {
    struct answers found;
    memset(&found, 0, sizeof found);
    if (getenv("OPENED") != NULL)
        CHECK(dlopen(getenv("OPENED"), RTLD_NOW | RTLD_GLOBAL) != NULL);
    errno = 12345;
    asks(&found);
    CHECK(errno == 12345);
    worker(found.id != 0x5ca1ab1e);
    CHECK(write(1, &found, strcmp(name, "stay") == 0 ? 1 : sizeof found) > 0);
    while (strcmp(name, "stay") == 0)
        pause();
}

int main(int count, char **arguments) {
    CHECK(count == 3);
    self = arguments[0], how = arguments[1];
    find_transport();
    if (strcmp(arguments[2], "answer") == 0 || strcmp(arguments[2], "stay") == 0) {
        part(arguments[2]);
        return 0;
    }
    char pool[2][256];
    for (int i = 0; i < 2; i++)
        snprintf(pool[i], sizeof pool[i], "%s/pool-%d", arguments[2], i);
    struct answers found;
    const int may_be_apart = run(pool[0], 1, "answer", NULL, &found, sizeof found);
    if (!may_be_apart)
        puts("no name spaces: processes in some of their own are left out");
    one_pool(pool[0], pool[1], may_be_apart);
    peers(getenv("VSHMEM_POOL"), pool[0], may_be_apart);
    char *library = strdup(getenv("LD_PRELOAD"));
    no_pool(pool[1], library);
    free(library);
    return 0;
}
