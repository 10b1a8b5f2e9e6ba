// SPDX-License-Identifier: MIT OR Apache-2.0
/* Everything at once: threads of several processes open, map, call, unmap and close the same files
 * in any order, with arguments and addresses of any kind; one writes at random into the pool; and
 * all of them are killed again and again. The kernel's log shows any fault afterwards. */
#define _GNU_SOURCE
#include "guest.h"

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PROCESSES = 3, THREADS = 3, FILES = 6, MAPS = 8, PAGE = 4096 };

/* What the threads of a process share, on purpose without a lock. */
static volatile int files[FILES];
static char *volatile maps[MAPS];
static volatile size_t lengths[MAPS];
static uint64_t pool_size;
/* Calls of all processes. */
static long *calls;

static __thread sigjmp_buf back;
static __thread volatile bool careful;

/* Another thread has unmapped what this one touches, or the device is gone. */
static void fallen(int signal) {
    if (careful)
        siglongjmp(back, 1);
    _exit(128 + signal);
}

static void touch(char *at, uint64_t value) {
    volatile uint64_t *word = (volatile uint64_t *)((uintptr_t)at & ~7ULL);

    if (sigsetjmp(back, 1) == 0) {
        careful = true;
        if (value % 2)
            *word = value;
        else
            (void)*word;
    }
    careful = false;
}

static int some_file(void) { return files[random_number() % FILES]; }

static char *some_place(void) {
    int i = random_number() % MAPS;
    size_t length = lengths[i];

    return maps[i] + (length ? random_number() % length : 0);
}

static void renew_file(void) {
    static const int how[] = {O_RDWR, O_RDWR, O_RDONLY, O_RDWR | O_NONBLOCK};
    int i = random_number() % FILES, old = files[i];

    files[i] = open(device_path, how[random_number() % 4] | O_CLOEXEC);
    if (old >= 0)
        close(old);
}

static void renew_map(void) {
    int i = random_number() % MAPS;
    int kind = random_number() % 8 ? MAP_SHARED : MAP_PRIVATE;
    size_t length =
        (random_number() % 4 ? random_number() % 64 * PAGE : odd_number(pool_size)) + PAGE;
    uint64_t offset = odd_number(pool_size) & ~4095ULL;
    char *at;

    kind |= random_number() % 8 ? 0 : MAP_POPULATE;
    offset |= random_number() % 2 ? VSHMEM_REMAINS : 0;
    if (length > pool_size)
        length = pool_size;
    at = mmap(NULL, length, random_number() % 8, kind, some_file(), offset);
    if (at == MAP_FAILED)
        return;
    if (maps[i])
        munmap(maps[i], lengths[i]);
    maps[i] = at;
    lengths[i] = length;
}

static void change_map(void) {
    static const int advice[] = {MADV_DONTNEED, MADV_DONTFORK, MADV_DOFORK, MADV_WILLNEED,
                                 MADV_COLD,     MADV_HUGEPAGE, MADV_REMOVE, MADV_POPULATE_WRITE};
    char *at = (char *)((uintptr_t)some_place() & ~4095ULL);
    size_t length = (1 + random_number() % 16) * PAGE;

    switch (random_number() % 7) {
    case 0:
        munmap(at, length);
        break;
    case 1:
        mprotect(at, length, random_number() % 8);
        break;
    case 2:
        /* Only growing in place: a mapping that moves may take another thread's memory. */
        mremap(at, length, length + PAGE, 0);
        break;
    case 3:
        msync(at, length, MS_SYNC);
        break;
    case 4:
        mlock(at, length);
        break;
    default:
        madvise(at, length, advice[random_number() % 8]);
    }
}

/* An address that is not mapped, at the end of a mapping, in the kernel, or in the pool. */
static void *some_argument(uint64_t *good) {
    switch (random_number() % 12) {
    case 0:
        return (void *)odd_number(pool_size);
    case 1:
        return (void *)(0xffff888000000000ULL + odd_number(pool_size));
    case 2:
    case 3:
        return some_place();
    case 4:
        return (char *)good + 8 * sizeof(*good) - random_number() % 32;
    default:
        return good;
    }
}

static void call(void) {
    static const unsigned int all[] = {VSHMEM_INFO, VSHMEM_WAIT, VSHMEM_WAKE,
                                       VSHMEM_RING, VSHMEM_WAIT, VSHMEM_WAKE};
    unsigned int number = all[random_number() % 6];
    uint64_t argument[16] = {0};
    int i;

    if (random_number() % 16 == 0)
        number ^= 1U << random_number() % 32;
    if (number == VSHMEM_WAIT && random_number() % 4) {
        struct vshmem_wait w = {.offset = random_number() % 64 * 4,
                                .expected = random_number() % 3,
                                .deadline = now_ns() + random_number() % 3000000};

        memcpy(argument, &w, sizeof(w));
    } else if (number == VSHMEM_WAKE && random_number() % 4) {
        struct vshmem_wake w = {.offset = random_number() % 64 * 4, .count = random_number() % 9};

        memcpy(argument, &w, sizeof(w));
    } else {
        for (i = 0; i < 4; i++)
            argument[i] = odd_number(pool_size);
    }
    ioctl(some_file(), number, some_argument(argument));
}

static void other_call(void) {
    char bytes[64];
    int fd = some_file();

    switch (random_number() % 5) {
    case 0:
        (void)!read(fd, bytes, sizeof(bytes));
        break;
    case 1:
        (void)!write(fd, some_place(), random_number() % 64);
        break;
    case 2:
        lseek(fd, odd_number(pool_size), random_number() % 3);
        break;
    case 3:
        /* The file lives on under another number. */
        close(dup(fd));
        break;
    default:
        fsync(fd);
    }
}

static void *one_thread(void *number) {
    random_state = (uintptr_t)number * 0x9e3779b97f4a7c15ULL | 1;
    for (;;) {
        int what = random_number() % 16;

        if (what == 0)
            renew_file();
        else if (what == 1)
            renew_map();
        else if (what == 2)
            change_map();
        else if (what == 3)
            other_call();
        else if (what < 8)
            touch(some_place(), random_number());
        else
            call();
        __atomic_fetch_add(calls, 1, __ATOMIC_RELAXED);
    }
    return NULL;
}

/* Does not return. */
static void one_process(uintptr_t seed) {
    struct sigaction action = {.sa_handler = fallen, .sa_flags = SA_NODEFER};
    pthread_t thread;
    uintptr_t i;

    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
    for (i = 0; i < FILES; i++)
        files[i] = open(device_path, O_RDWR | O_CLOEXEC);
    for (i = 1; i < THREADS; i++)
        pthread_create(&thread, NULL, one_thread, (void *)(seed * THREADS + i));
    one_thread((void *)(seed * THREADS));
}

static pid_t start(uintptr_t seed) {
    pid_t pid;

    fflush(stdout);
    pid = must(fork(), "fork");
    if (pid == 0)
        one_process(seed);
    return pid;
}

/* Each process lives for a moment, and is killed at any point. */
static int weather(int seconds, uintptr_t seed) {
    int64_t until = now_ns() + seconds * 1000000000LL;
    pid_t pids[PROCESSES] = {0};
    int i, kills = 0;

    while (now_ns() < until) {
        i = random_number() % PROCESSES;
        if (pids[i]) {
            kill(pids[i], SIGKILL);
            kills += end_of(pids[i]) == 1000 + SIGKILL;
        }
        pids[i] = start(seed++);
        nap_ms(20 + random_number() % 100);
    }
    for (i = 0; i < PROCESSES; i++) {
        if (!pids[i])
            continue;
        kill(pids[i], SIGKILL);
        check(end_of(pids[i]) >= 0, "process %d of the storm can be killed", i + 1);
    }
    return kills;
}

/* Sleepers are still woken. */
static void check_works(void) {
    int fd = open_device(O_RDWR);
    volatile uint32_t *mem = map_all(fd, pool_size);
    pid_t sleeper;

    mem[0] = 1;
    sleeper = start_sleeper(fd, 0, 1, now_ns() + 60000000000LL);
    mem[0] = 2;
    check(wake_word(fd, 0, 1) == 1 && end_of(sleeper) == 0, "after it a sleeper is woken");
    munmap((void *)mem, pool_size);
    close(fd);
}

/* The device is unbound and bound again meanwhile. */
static void check_removal(const char *pci, uintptr_t seed) {
    pid_t pids[PROCESSES];
    int i;

    for (i = 0; i < PROCESSES; i++)
        pids[i] = start(seed + i);
    nap_ms(300);
    must(write_to("/sys/bus/pci/drivers/vshmem/unbind", pci), "unbind");
    nap_ms(300);
    must(write_to("/sys/bus/pci/drivers/vshmem/bind", pci), "bind");
    nap_ms(300);
    for (i = 0; i < PROCESSES; i++) {
        kill(pids[i], SIGKILL);
        check(end_of(pids[i]) >= 0, "process %d can be killed after the device was away", i + 1);
    }
    /* Where files were open meanwhile, these have the old number. */
    device_path = access("/dev/vshmem1", F_OK) ? "/dev/vshmem0" : "/dev/vshmem1";
}

void test_storm(int seconds) {
    int fd = open_device(O_RDWR), kills, i;
    struct vshmem_info info = get_info(fd);

    pool_size = info.size;
    close(fd);
    calls = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    kills = weather(seconds, 1);
    check(kills > 0, "%ld calls of %d threads, and %d kills", *calls, PROCESSES * THREADS, kills);
    check_works();
    for (i = 0; i < 1 + seconds / 10; i++) {
        check_removal(info.pci, 1000000 + i * PROCESSES);
        check_works();
    }
}
