/* vshm_pool_*: several pools in one process. Arguments: a folder for them, and "unstepped" where a
 * program can't step through its own instructions, as under valgrind. */
#include "capi.h"
#include <vshmem.h>

enum { KEY = 0x900 };
static char path[8][256];

static int set_in(vshm_pool *pool, int value) {
    CHECK(vshm_pool_use(pool) == 0);
    int id = vshm_semget(KEY, 1, IPC_CREAT | 0600);
    CHECK(id >= 0 && vshm_semctl(id, 0, SETVAL, value) == 0);
    return id;
}

#ifdef __x86_64__
static vshm_pool *here, *there;
static int steps, turn_at;
enum { TRAP_FLAG = 0x100, TURNED = 100 };

/* Turns to another pool at an instruction, and back at a later one. */
static void step(int signal) {
    (void)signal;
    steps++;
    if (steps == turn_at || steps == turn_at + TURNED)
        CHECK(vshm_pool_use(steps == turn_at ? there : here) == 0);
}

static void trap(unsigned long flag) {
    __asm__ volatile("pushfq; andq $~0x100, (%%rsp); orq %0, (%%rsp); popfq" ::"r"(flag)
                     : "memory", "cc");
}

static void one_more(int id) { CHECK(vshm_semop(id, OP(0, 1, 0), 1) == 0); }

/* What a process remembers of a set when it uses it is of the pool in which that lies, wherever
 * another thread has calls go to another pool, and back again. When a pool is closed, all is
 * forgotten. */
static void remembered(vshm_pool *one, vshm_pool *other, const char *closed) {
    here = one, there = other;
    CHECK(vshm_pool_use(there) == 0);
    int id = vshm_semget(IPC_PRIVATE, 1, 0666);
    CHECK(vshm_pool_use(here) == 0 && vshm_semget(IPC_PRIVATE, 1, 0666) == id && id != -1);
    CHECK(signal(SIGTRAP, step) != SIG_ERR);
    for (turn_at = 1, steps = turn_at; steps >= turn_at; turn_at++) {
        vshm_pool *third = vshm_pool_open(closed);
        set_in(third, 0);
        CHECK(vshm_pool_use(here) == 0 && vshm_pool_close(third) == 0);
        steps = 0;
        trap(TRAP_FLAG);
        one_more(id);
        trap(0);
        CHECK(vshm_pool_use(here) == 0);
        int before = vshm_semctl(id, 0, GETVAL);
        one_more(id);
        CHECK(vshm_semctl(id, 0, GETVAL) == before + 1);
    }
    CHECK(turn_at > TURNED && signal(SIGTRAP, SIG_DFL) != SIG_ERR);
}
#endif

int main(int count, char **arguments) {
    CHECK(count == 2 || (count == 3 && strcmp(arguments[2], "unstepped") == 0));
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

#ifdef __x86_64__
    GIVES(vshm_pool_close(pools[6]), 0);
    if (count == 2)
        remembered(pools[2], pools[3], path[6]);
#endif

    /* An attachment knows its pool. */
    CHECK(vshm_pool_use(pools[0]) == 0);
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
