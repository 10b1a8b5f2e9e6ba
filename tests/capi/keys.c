/*
 * Which calls go to the pool. Arguments: the keys that shall be the pool's, then "-", then those
 * that shall be the kernel's. "none": every call shall fail and say why.
 */
#include "capi.h"
#include <dlfcn.h>

static int is_ours(int id) { return (id & 0x40000000) != 0; }

static key_t key_of(const char *text) { return (key_t)strtoll(text, NULL, 0); }

static const char *last_error(void) {
    const char *(*ask)(void) = (const char *(*)(void))dlsym(RTLD_DEFAULT, "vshm_last_error");
    CHECK(ask != NULL);
    return ask();
}

static void all_fail(void) {
    FAILS(semget(IPC_PRIVATE, 1, 0600), EINVAL);
    CHECK(strstr(last_error(), "VSHMEM_") != NULL);
    FAILS(msgget(5, IPC_CREAT | 0600), EINVAL);
    CHECK(strstr(last_error(), "msgget: VSHMEM_") == last_error());
    FAILS(shmget(5, 1, IPC_CREAT | 0600), EINVAL);
    FAILS(semop(0x40000001, OP(0, 1, 0), 1), EINVAL);
    CHECK(strstr(last_error(), "VSHMEM_") != NULL);
}

/* Whether /proc lists a set, the kernel's or the pool's. */
static int is_listed(int id) {
    FILE *file = fopen("/proc/sysvipc/sem", "re");
    CHECK(file != NULL);
    char line[256];
    int found = 0;
    for (int at; fgets(line, sizeof line, file) != NULL;)
        found += sscanf(line, "%*d %d", &at) == 1 && at == id;
    CHECK(fclose(file) == 0 && found <= 1);
    return found;
}

/* All three kinds with one key; the kernel's and the pool's work side by side. */
static void use(key_t key, int ours) {
    int set = semget(key, 1, IPC_CREAT | 0600), queue = msgget(key, IPC_CREAT | 0600),
        segment = shmget(key, 4096, IPC_CREAT | 0600);
    CHECK(set >= 0 && queue >= 0 && segment >= 0);
    int (*takes)(key_t) = (int (*)(key_t))dlsym(RTLD_DEFAULT, "vshm_takes_key");
    CHECK(takes != NULL && takes(key) == ours);
    if (is_ours(set) != ours || is_ours(queue) != ours || is_ours(segment) != ours) {
        fprintf(stderr, "key %#x: ids %#x %#x %#x\n", (unsigned)key, (unsigned)set, (unsigned)queue,
                (unsigned)segment);
        _exit(1);
    }
    struct message m = {1, "text"};
    struct semid_ds ds;
    GIVES(semop(set, OP(0, 1, 0), 1), 0);
    GIVES(semctl(set, 0, GETVAL), 1);
    GIVES(semctl(set, 0, IPC_STAT, &ds), 0);
    CHECK(ds.sem_nsems == 1);
    GIVES(msgsnd(queue, &m, 5, 0), 0);
    GIVES(msgrcv(queue, &m, 64, 0, 0), 5);
    char *p = shmat(segment, NULL, 0);
    CHECK(p != (void *)-1);
    p[0] = 1;
    GIVES(shmdt(p), 0);
    FAILS(shmdt(p), EINVAL);

    /* Both are found by index. */
    int highest = semctl(0, 0, SEM_INFO, &(struct seminfo){0}), found = 0;
    CHECK(highest >= 0);
    for (int i = 0; i <= highest; i++)
        found += semctl(i, 0, SEM_STAT, &ds) == set;
    CHECK(found == 1 && is_listed(set));

    GIVES(semctl(set, 0, IPC_RMID), 0);
    CHECK(!is_listed(set));
    GIVES(msgctl(queue, IPC_RMID, NULL), 0);
    GIVES(shmctl(segment, IPC_RMID, NULL), 0);
    FAILS(semctl(set, 0, GETVAL), EINVAL);
}

int main(int count, char **arguments) {
    if (count == 2 && strcmp(arguments[1], "none") == 0) {
        all_fail();
        return 0;
    }
    int ours = 1;
    for (int i = 1; i < count; i++) {
        if (strcmp(arguments[i], "-") == 0)
            ours = 0;
        else
            use(key_of(arguments[i]), ours);
    }
    return 0;
}
