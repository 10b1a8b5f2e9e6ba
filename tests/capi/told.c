/*
 * GETALL, SETALL and SHM_REMAP only on what the process was told the size of: by asking for it, by
 * IPC_STAT, or by its parent's memory. Argument: a folder for pools.
 */
#include "capi.h"
#include <vshmem.h>

enum { KEY = 0x901, SEMAPHORES = 3 };
static size_t page;

static void *pages(size_t count) {
    void *p = mmap(NULL, count * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED);
    memset(p, 9, count * page);
    return p;
}

static void refused_until_told(int set) {
    unsigned short values[SEMAPHORES + 1] = {9, 9, 9, 9};
    FAILS(vshm_semctl(set, 0, GETALL, values), EIDRM);
    CHECK(strstr(vshm_last_error(), "IPC_STAT") != NULL);
    FAILS(vshm_semctl(set, 0, SETALL, values), EIDRM);
    CHECK(strstr(vshm_last_error(), "IPC_STAT") != NULL);
    CHECK(values[0] == 9 && vshm_semctl(set, 0, GETVAL) == 0);
}

static void works(int set) {
    unsigned short values[SEMAPHORES + 1] = {1, 2, 3, 9};
    GIVES(vshm_semctl(set, 0, SETALL, values), 0);
    memset(values, 9, sizeof values);
    GIVES(vshm_semctl(set, 0, GETALL, values), 0);
    CHECK(values[0] == 1 && values[2] == 3 && values[3] == 0x909);
    GIVES(vshm_semctl(set, 0, SETALL, ((unsigned short[SEMAPHORES]){0})), 0);
}

/* A program that got ids on its command line. */
static void newcomer(int set, int segment, const char *how) {
    struct semid_ds sem;
    struct shmid_ds shm;
    refused_until_told(set);
    if (strcmp(how, "IPC_STAT") == 0)
        GIVES(vshm_semctl(set, 0, IPC_STAT, &sem), 0);
    else if (strcmp(how, "SEM_STAT_ANY") == 0)
        GIVES(vshm_semctl(set & 0x1ffff, 0, SEM_STAT_ANY, &sem), set);
    else if (strcmp(how, "semget") == 0)
        GIVES(vshm_semget(KEY, SEMAPHORES, 0), set);
    if (strcmp(how, "fewer") == 0) {
        /* It has room for one. */
        GIVES(vshm_semget(KEY, 1, 0), set);
        refused_until_told(set);
        GIVES(vshm_semctl(set, 0, IPC_STAT, &sem), 0);
    }
    works(set);

    char *room = pages(3), *anywhere;
    FAILS(vshm_shmat(segment, room, SHM_REMAP), EIDRM);
    CHECK(strstr(vshm_last_error(), "IPC_STAT") != NULL);
    CHECK(room[0] == 9);
    /* Nothing is mapped over here. */
    anywhere = vshm_shmat(segment, NULL, 0);
    CHECK(anywhere != (void *)-1 && vshm_shmdt(anywhere) == 0);
    FAILS(vshm_shmat(segment, room, SHM_REMAP), EIDRM);
    GIVES(vshm_shmctl(segment, IPC_STAT, &shm), 0);
    CHECK(vshm_shmat(segment, room, SHM_REMAP) == room);
    CHECK(room[0] == 0 && room[2 * page - 1] == 0 && room[2 * page] == 9);
    /* Detaching forgets nothing. */
    GIVES(vshm_shmdt(room), 0);
    CHECK(vshm_shmat(segment, room, SHM_REMAP) == room);
    GIVES(vshm_shmdt(room), 0);
}

static void newcomers(const char *program) {
    const int set = vshm_semget(KEY, SEMAPHORES, IPC_CREAT | 0600);
    const int segment = vshm_shmget(IPC_PRIVATE, 2 * page, 0600);
    CHECK(set >= 0 && segment >= 0);
    works(set);
    pid_t child = fork();
    if (child == 0) {
        works(set);
        exit(0);
    }
    wait_for_success(child);
    child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0) {
        works(set);
        _exit(0);
    }
    wait_for_success(child);
    static const char *const ways[] = {"IPC_STAT", "SEM_STAT_ANY", "semget", "fewer"};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        if ((child = fork()) == 0) {
            char numbers[2][16];
            snprintf(numbers[0], sizeof numbers[0], "%d", set);
            snprintf(numbers[1], sizeof numbers[1], "%d", segment);
            execl(program, program, "newcomer", numbers[0], numbers[1], ways[i], NULL);
            _exit(127);
        } else {
            wait_for_success(child);
        }
    GIVES(vshm_semctl(set, 0, IPC_RMID), 0);
    GIVES(vshm_shmctl(segment, IPC_RMID, NULL), 0);
}

/* A pool that is opened where another one was has the same ids, and its own IPC objects. */
static void another_pool(const char *folder) {
    int sets[2] = {0};
    for (int i = 0; i < 2; i++) {
        char path[256];
        snprintf(path, sizeof path, "%s/pool-told-%d", folder, i);
        GIVES(vshm_pool_create(path, 4 << 20, 0600), 0);
        pid_t child = fork();
        if (child == 0) {
            CHECK(vshm_pool_use(vshm_pool_open(path)) == 0);
            CHECK(vshm_semget(KEY, SEMAPHORES, IPC_CREAT | IPC_EXCL | 0600) >= 0);
            exit(0);
        }
        wait_for_success(child);
        vshm_pool *pool = vshm_pool_open(path);
        CHECK(pool != NULL && vshm_pool_use(pool) == 0);
        if (i == 0) {
            sets[0] = vshm_semget(KEY, SEMAPHORES, 0);
            works(sets[0]);
        } else {
            refused_until_told(sets[0]);
            CHECK(vshm_semget(KEY, SEMAPHORES, 0) == sets[0]);
            works(sets[0]);
        }
        CHECK(vshm_pool_use(NULL) == 0);
        GIVES(vshm_pool_close(pool), 0);
    }
}

int main(int count, char **arguments) {
    page = (size_t)sysconf(_SC_PAGESIZE);
    if (count == 5) {
        newcomer(atoi(arguments[2]), atoi(arguments[3]), arguments[4]);
        return 0;
    }
    CHECK(count == 2);
    newcomers(arguments[0]);
    another_pool(arguments[1]);
    return 0;
}
