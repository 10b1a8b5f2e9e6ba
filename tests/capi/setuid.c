/* Credentials count as they are at the moment of the call. Needs root. */
#include "capi.h"
#include <grp.h>
#include <pthread.h>

enum { NOBODY = 65534, GROUP = 4321, OTHER = 4322 };
static int set;

static void change_and_back(void) {
    for (int i = 0; i < 2000; i++) {
        GIVES(semop(set, OP(0, 1, 0), 1), 0);
        CHECK(seteuid(NOBODY) == 0);
        FAILS(semop(set, OP(0, -1, 0), 1), EACCES);
        FAILS(semctl(set, 0, GETVAL, 0), EACCES);
        FAILS(semctl(set, 0, IPC_RMID, 0), EPERM);
        CHECK(seteuid(0) == 0);
        GIVES(semop(set, OP(0, -1, 0), 1), 0);
    }
}

static void groups(void) {
    struct semid_ds ds;
    CHECK(semctl(set, 0, IPC_STAT, &ds) == 0);
    ds.sem_perm.gid = GROUP;
    ds.sem_perm.mode = 0660;
    CHECK(semctl(set, 0, IPC_SET, &ds) == 0);
    gid_t some[3] = {7, GROUP, 9};
    CHECK(setegid(OTHER) == 0); /* the creator's group, root's, has the same rights */
    CHECK(setgroups(3, some) == 0 && seteuid(NOBODY) == 0);
    GIVES(semop(set, OP(0, 1, 0), 1), 0);
    CHECK(seteuid(0) == 0 && setgroups(0, NULL) == 0 && seteuid(NOBODY) == 0);
    FAILS(semop(set, OP(0, -1, 0), 1), EACCES);
    CHECK(seteuid(0) == 0 && setegid(GROUP) == 0 && seteuid(NOBODY) == 0);
    GIVES(semop(set, OP(0, -1, 0), 1), 0);
    CHECK(seteuid(0) == 0 && setegid(OTHER) == 0);
    static gid_t many[1000];
    for (int i = 0; i < 1000; i++)
        many[i] = 100000 + i;
    many[999] = GROUP;
    CHECK(setgroups(1000, many) == 0 && seteuid(NOBODY) == 0);
    GIVES(semop(set, OP(0, 0, IPC_NOWAIT), 1), 0);
    CHECK(seteuid(0) == 0 && setgroups(0, NULL) == 0 && setegid(0) == 0);
}

/* One thread's own credentials, changed behind libc's back. */
static void *in_other_thread(void *arg) {
    CHECK(syscall(SYS_setresuid, NOBODY, NOBODY, NOBODY) == 0);
    for (int i = 0; i < 1000; i++)
        FAILS(semop(set, OP(0, 0, IPC_NOWAIT), 1), EACCES);
    return arg;
}

#ifdef __x86_64__
/* The same by the instruction, which nothing can see: it counts in the second after next at the
 * latest. */
static void *by_instruction(void *arg) {
    for (int i = 0; i < 100; i++)
        GIVES(semop(set, OP(0, 1, 0), 1), 0);
    long result = SYS_setresuid;
    register long id1 __asm__("rdi") = NOBODY, id2 __asm__("rsi") = NOBODY,
                      id3 __asm__("rdx") = NOBODY;
    __asm__ volatile("syscall"
                     : "+a"(result)
                     : "r"(id1), "r"(id2), "r"(id3)
                     : "rcx", "r11", "memory");
    CHECK(result == 0);
    time_t begun = time(NULL);
    for (int by = 1; semop(set, OP(0, (short)by, IPC_NOWAIT), 1) == 0; by = -by)
        CHECK(time(NULL) < begun + 2);
    CHECK(errno == EACCES);
    return arg;
}
#endif

static void threads(void) {
    struct semid_ds ds;
    CHECK(semctl(set, 0, IPC_STAT, &ds) == 0);
    ds.sem_perm.mode = 0600;
    ds.sem_perm.gid = 0;
    CHECK(semctl(set, 0, IPC_SET, &ds) == 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, in_other_thread, NULL) == 0);
    for (int i = 0; i < 1000; i++)
        GIVES(semop(set, OP(0, 0, IPC_NOWAIT), 1), 0);
    CHECK(pthread_join(thread, NULL) == 0);
#ifdef __x86_64__
    CHECK(pthread_create(&thread, NULL, by_instruction, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
#endif
}

/* Gives everything up for good, then still may only what it may. */
static void for_good(void) {
    pid_t child = fork();
    if (child == 0) {
        CHECK(setgroups(0, NULL) == 0 && setresgid(GROUP, GROUP, GROUP) == 0);
        CHECK(setresuid(NOBODY, NOBODY, NOBODY) == 0);
        for (int i = 0; i < 3; i++)
            FAILS(semop(set, OP(0, 0, 0), 1), EACCES);
        int own = semget(IPC_PRIVATE, 1, 0600);
        struct semid_ds ds;
        CHECK(own >= 0 && semctl(own, 0, IPC_STAT, &ds) == 0);
        CHECK(ds.sem_perm.uid == NOBODY && ds.sem_perm.cgid == GROUP);
        CHECK(semctl(own, 0, IPC_RMID, 0) == 0);
        exit(0);
    }
    wait_for_success(child);
}

int main(void) {
    if (geteuid() != 0) {
        puts("skipped: needs root");
        return 0;
    }
    set = semget(IPC_PRIVATE, 1, 0600);
    CHECK(set >= 0);
    change_and_back();
    groups();
    threads();
    for_good();
    return 0;
}
