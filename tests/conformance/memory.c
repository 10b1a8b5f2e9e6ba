/*
 * What a process may do with its memory and with limits on it, whatever calls it makes. Each test
 * begins in a process that has made no call yet: what one maps at its first calls counts.
 */
#include "tests.h"

#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

static void with_a_key(void) {
    const int id = (int)OK(shmget(0x777100, 4096, IPC_CREAT | 0600));
    struct shmid_ds ds;
    OK(shmctl(id, IPC_STAT, &ds));
    OK(shmctl(id, IPC_RMID, NULL));
}

static void with_semaphores(void) {
    const int id = (int)OK(semget(IPC_PRIVATE, 3, 0600));
    struct sembuf both[2] = {{0, 1, SEM_UNDO}, {1, 1, 0}}, in_vain = {2, -1, IPC_NOWAIT};
    OK(semop(id, both, 2));
    FAILS(semop(id, &in_vain, 1), EAGAIN);
    in_vain.sem_flg = 0;
    FAILS(semtimedop(id, &in_vain, 1, &(struct timespec){0, 5000000}), EAGAIN);
    OK(semctl(id, 0, IPC_RMID));
}

static void with_messages(void) {
    const int id = (int)OK(msgget(IPC_PRIVATE, 0600));
    struct {
        long type;
        char text[2000];
    } message = {1, {0}};
    OK(msgsnd(id, &message, sizeof message.text, 0));
    EQUAL(msgrcv(id, &message, sizeof message.text, 0, 0), sizeof message.text);
    OK(msgctl(id, IPC_RMID, NULL));
}

static void work(void *argument) { (*(void (**)(void))argument)(); }

static void with_a_child(void) {
    void (*what)(void) = with_a_key;
    joined(child(work, &what), 0);
}

static void with_limits(void) {
    struct shm_info used;
    struct shminfo limits;
    OK(shmctl(0, SHM_INFO, (struct shmid_ds *)&used));
    OK(shmctl(0, IPC_INFO, (struct shmid_ds *)&limits));
}

static void (*const calls[])(void) = {with_a_key, with_semaphores, with_messages, with_a_child,
                                      with_limits};

static int segment(void) { return (int)OK(shmget(IPC_PRIVATE, 8192, 0600)); }

static char *attached_once(void) {
    const int id = segment();
    char *at = (char *)OK(shmat(id, NULL, 0));
    OK(shmdt(at));
    OK(shmctl(id, IPC_RMID, NULL));
    return at;
}

static char *mapped_once(void) {
    char *at = (char *)OK(mmap(NULL, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    OK(munmap(at, 8192));
    return at;
}

static char *(*probe)(void);

static void attaches_where_it_was_free(void *call) {
    char *at = probe();
    if (call != NULL)
        work(call);
    const int id = segment();
    EQUAL((long)OK(shmat(id, at, 0)), (long)at);
    memset(at, 1, 8192);
    OK(shmdt(at));
    OK(shmctl(id, IPC_RMID, NULL));
}

static void stays_free(char *(*how)(void)) {
    probe = how;
    joined(child(attaches_where_it_was_free, NULL), 0);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        joined(child(attaches_where_it_was_free, (void *)&calls[i]), 0);
}

static void an_address_that_was_attached_stays_free(void) { stays_free(attached_once); }

static void an_address_that_was_mapped_stays_free(void) { stays_free(mapped_once); }

static long locked_kib(void) {
    char line[256];
    long kib = -1;
    FILE *file = fopen("/proc/self/status", "re");
    CHECK(file != NULL);
    while (fgets(line, sizeof line, file) != NULL)
        sscanf(line, "VmLck: %ld", &kib);
    fclose(file);
    return kib;
}

/* What is attached is locked after mlockall, and little more: a limit of 8 MiB is enough. */
static void little_may_be_locked(void) {
    struct __user_cap_header_struct whose = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct set[2];
    OK(syscall(SYS_capget, &whose, set));
    set[0].effective &= ~(1u << CAP_IPC_LOCK);
    OK(syscall(SYS_capset, &whose, set));
    if (setrlimit(RLIMIT_MEMLOCK, &(struct rlimit){8 << 20, 8 << 20}) != 0)
        skip("8 MiB can't be locked here (ulimit -l)");
    OK(mlockall(MCL_FUTURE));
    const long before = locked_kib();
    const int id = (int)OK(shmget(IPC_PRIVATE, 1 << 20, 0600));
    OK(shmat(id, NULL, 0));
    OK(shmctl(id, IPC_RMID, NULL));
    with_semaphores();
    const long more = locked_kib() - before;
    CHECK(more >= 1 << 10 && more < 4 << 10);
}

enum { SMALL = 64 << 10, LARGE = 20 << 20 };

static void new_memory_is_zero(size_t size) {
    const int id = (int)OK(shmget(IPC_PRIVATE, size, 0600));
    char *at = (char *)OK(shmat(id, NULL, 0));
    for (size_t i = 0; i < size; i += 4096)
        CHECK(at[i] == 0);
    memset(at, 1, size);
    OK(shmctl(id, IPC_RMID, NULL));
    OK(shmdt(at));
}

/* As batch systems set it: less than what all IPC objects together may have. */
static void little_address_space_is_enough(void) {
    probe = attached_once;
    if (setrlimit(RLIMIT_AS, &(struct rlimit){400 << 20, 400 << 20}) != 0)
        skip("not allowed here");
    for (int round = 0; round < 3; round++) {
        new_memory_is_zero(SMALL);
        new_memory_is_zero(LARGE);
        with_semaphores();
        with_messages();
        with_a_child();
        with_limits();
    }
    attaches_where_it_was_free(NULL);
}

TESTS({"memory/an_address_that_was_attached_stays_free", an_address_that_was_attached_stays_free},
      {"memory/an_address_that_was_mapped_stays_free", an_address_that_was_mapped_stays_free},
      {"memory/little_address_space_is_enough", little_address_space_is_enough},
      {"memory/little_may_be_locked", little_may_be_locked})
