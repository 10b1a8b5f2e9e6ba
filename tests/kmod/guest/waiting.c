// SPDX-License-Identifier: MIT OR Apache-2.0
/* Waiting and waking in one machine, and ringing doorbells. */
#define _GNU_SOURCE
#include "guest.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORD 256 /* index of the word that is waited for */
#define OFFSET (WORD * 4)

static void nothing(int signal) { (void)signal; }

static void check_arguments(int fd, volatile uint32_t *mem, uint64_t size) {
    struct vshmem_wait w = {.offset = OFFSET, .expected = 5, .flags = 1, .deadline = 0};

    mem[WORD] = 5;
    check_errno(wait_word(fd, OFFSET + 1, 5, 0), EINVAL, "wait at an odd offset");
    check_errno(wait_word(fd, OFFSET + 2, 5, 0), EINVAL, "wait at half a word");
    check_errno(wait_word(fd, size, 5, 0), EINVAL, "wait behind the end");
    check_errno(wait_word(fd, UINT64_MAX - 3, 5, 0), EINVAL, "wait far behind the end");
    check_errno(wait_word(fd, OFFSET, 5, -2), EINVAL, "wait until before the beginning");
    check_errno(ioctl(fd, VSHMEM_WAIT, &w), EINVAL, "wait with an unknown flag");
    check_errno(ioctl(fd, VSHMEM_WAIT, (void *)8), EFAULT, "wait without an argument");
    check_errno(wake_word(fd, OFFSET + 1, 1), EINVAL, "wake at an odd offset");
    check_errno(wake_word(fd, size, 1), EINVAL, "wake behind the end");
    check_errno(wake_word(fd, OFFSET, UINT32_MAX), EINVAL, "wake more than all");
    check_errno(ioctl(fd, VSHMEM_WAKE, (void *)8), EFAULT, "wake without an argument");
    check_errno(ioctl(fd, VSHMEM_INFO, (void *)8), EFAULT, "ask without an argument");
    check_errno(ioctl(fd, _IO(VSHMEM_IOCTL_TYPE, 99), 0), ENOTTY, "a call that there isn't");
}

static void check_deadlines(int fd, volatile uint32_t *mem) {
    int64_t began = now_ns(), took;

    mem[WORD] = 5;
    check_errno(wait_word(fd, OFFSET, 6, VSHMEM_FOREVER), EAGAIN, "wait for a word that differs");
    check_errno(wait_word(fd, OFFSET, 5, 0), ETIMEDOUT, "wait until long ago");
    check_errno(wait_word(fd, OFFSET, 5, began + 50000000), ETIMEDOUT, "wait for 50 ms");
    took = now_ns() - began;
    check(took >= 50000000 && took < 2000000000, "that took %lld us", (long long)took / 1000);
}

static void check_wakes(int fd, volatile uint32_t *mem) {
    pid_t first, second, third;

    mem[WORD] = 5;
    check(wake_word(fd, OFFSET, VSHMEM_ALL) == 0, "there is no sleeper to wake");
    first = start_sleeper(fd, OFFSET, 5, VSHMEM_FOREVER);
    second = start_sleeper(fd, OFFSET, 5, VSHMEM_FOREVER);
    third = start_sleeper(fd, OFFSET, 5, VSHMEM_FOREVER);
    check(wake_word(fd, OFFSET + 4, VSHMEM_ALL) == 0, "they sleep on another word");
    check(wake_word(fd, OFFSET, 0) == 0, "wake none");
    check(wake_word(fd, OFFSET, 1) == 1, "wake one");
    check(end_of(first) == 0, "the first sleeper is woken first");
    check(is_there(second) && is_there(third), "the others sleep on");
    check(wake_word(fd, OFFSET, VSHMEM_ALL) == 2, "wake all");
    check(end_of(second) == 0 && end_of(third) == 0, "all are woken");
    first = start_sleeper(fd, OFFSET, 5, VSHMEM_FOREVER);
    kill(first, SIGKILL);
    check(end_of(first) == 1000 + SIGKILL && wake_word(fd, OFFSET, VSHMEM_ALL) == 0,
          "a sleeper that is killed leaves nothing behind");
}

static void check_signals(int fd, volatile uint32_t *mem) {
    struct sigaction action = {.sa_handler = nothing, .sa_flags = SA_RESTART};
    struct rusage usage;
    pid_t pid;

    mem[WORD] = 5;
    sigaction(SIGUSR1, &action, NULL);
    pid = start_sleeper(fd, OFFSET, 5, VSHMEM_FOREVER);
    kill(pid, SIGUSR1);
    check(end_of(pid) == EINTR, "a handled signal ends the wait, even with SA_RESTART");

    pid = start_sleeper(fd, OFFSET, 5, VSHMEM_FOREVER);
    kill(pid, SIGSTOP);
    nap_ms(20);
    kill(pid, SIGCONT);
    nap_ms(20);
    check(is_there(pid), "being stopped for a while does not");
    nap_ms(1000);
    check(wake_word(fd, OFFSET, 1) == 1 && end_of(pid) == 0, "it can still be woken");
    getrusage(RUSAGE_CHILDREN, &usage);

    pid = start_sleeper(fd, OFFSET, 5, now_ns() + 200000000);
    kill(pid, SIGSTOP);
    nap_ms(300);
    kill(pid, SIGCONT);
    check(end_of(pid) == ETIMEDOUT, "a deadline that passes while it is stopped counts");
}

static void check_idle(int fd, volatile uint32_t *mem) {
    struct rusage before, after;
    int64_t used;
    pid_t pid;

    mem[WORD] = 5;
    getrusage(RUSAGE_CHILDREN, &before);
    pid = start_sleeper(fd, OFFSET, 5, now_ns() + 2000000000);
    nap_ms(1000);
    check(end_of(pid) == ETIMEDOUT, "a wait of two seconds");
    getrusage(RUSAGE_CHILDREN, &after);
    used = (after.ru_utime.tv_sec - before.ru_utime.tv_sec + after.ru_stime.tv_sec -
            before.ru_stime.tv_sec) *
               1000000 +
           after.ru_utime.tv_usec - before.ru_utime.tv_usec + after.ru_stime.tv_usec -
           before.ru_stime.tv_usec;
    check(used < 100000, "it used %lld us of CPU time, with start and end", (long long)used);
}

/* In a time namespace the clock has another offset. */
static void check_time_namespace(int fd, volatile uint32_t *mem) {
    static const char shift[] = "monotonic 100000 0\n";
    pid_t pid;
    int offsets;

    fflush(stdout);
    mem[WORD] = 5;
    pid = must(fork(), "fork");
    if (pid == 0) {
        if (unshare(0x80 /* CLONE_NEWTIME */) < 0)
            _exit(0);
        offsets = open("/proc/self/timens_offsets", O_WRONLY);
        if (offsets < 0 || write(offsets, shift, sizeof(shift) - 1) < 0)
            _exit(1);
        pid = fork();
        if (pid == 0) {
            int64_t began = now_ns();

            if (began < 100000000000000)
                _exit(2);
            if (wait_word(fd, OFFSET, 5, began + 50000000) != -1 || errno != ETIMEDOUT)
                _exit(3);
            _exit(now_ns() - began >= 50000000 ? 0 : 4);
        }
        _exit(end_of(pid) & 0xff);
    }
    check(end_of(pid) == 0, "deadlines are those of the caller's time namespace");
}

void test_waiting(void) {
    int fd = open_device(O_RDWR);
    uint64_t size = get_info(fd).size;
    volatile uint32_t *mem = map_all(fd, size);

    check_arguments(fd, mem, size);
    check_deadlines(fd, mem);
    check_wakes(fd, mem);
    check_signals(fd, mem);
    check_idle(fd, mem);
    check_time_namespace(fd, mem);
    munmap((void *)mem, size);
    close(fd);
}

/* A call that names its device rings that one, or none. */
static void check_device(int fd, int member) {
    struct vshmem_ring r = {.peer = (__u32)member};
    struct stat st;

    must(fstat(fd, &st), "the device's status");
    r.device = (__u16)(minor(st.st_rdev) + 1);
    check(ioctl(fd, VSHMEM_RING, &r) == 0, "ring by the device that is meant");
    r.device++;
    check_errno(ioctl(fd, VSHMEM_RING, &r), EXDEV, "ring by another device");
}

/* So many that the driver leaves them to the interrupt's thread. */
static void check_many(int fd, volatile uint32_t *mem, int member) {
    enum { MANY = 40 };
    pid_t pids[MANY];
    int i, woken = 0, asleep = 0;

    for (i = 0; i < MANY; i++) {
        mem[WORD + i] = 5;
        pids[i] = start_sleeper(fd, OFFSET + 4 * i, 5, VSHMEM_FOREVER);
    }
    for (i = 0; i < MANY; i += 2)
        mem[WORD + i] = 6;
    must(ring(fd, member, 0), "VSHMEM_RING");
    for (i = 0; i < MANY; i += 2)
        woken += end_of(pids[i]) == 0;
    for (i = 1; i < MANY; i += 2)
        asleep += is_there(pids[i]);
    check(woken == MANY / 2, "of %d sleepers a ring wakes those whose word has changed", MANY);
    check(asleep == MANY / 2, "and no others");
    for (i = 1; i < MANY; i += 2) {
        wake_word(fd, OFFSET + 4 * i, 1);
        end_of(pids[i]);
    }
}

void test_ringing(bool doorbell) {
    int fd = open_device(O_RDWR);
    struct vshmem_info info = get_info(fd);
    volatile uint32_t *mem = map_all(fd, info.size);
    uint32_t vector;
    pid_t pid;

    check_errno(ring(fd, 0x10000, 0), EINVAL, "ring a member beyond the last");
    check_errno(ring(fd, UINT32_MAX, 0), EINVAL, "ring a member far beyond the last");
    check_errno(ring(fd, 0, 0xffff), EINVAL, "ring a vector beyond the last");
    if (!doorbell) {
        check_errno(ring(fd, 0, 0), EOPNOTSUPP, "ring without a doorbell");
        goto out;
    }
    check(ring(fd, 0xffff, 0) == 0, "ring a member that there isn't");
    check(ring(fd, info.member, 0xfffe) == 0, "ring a vector that there isn't");
    check_device(fd, info.member);
    check_many(fd, mem, info.member);
    for (vector = 0; vector < info.vectors; vector++) {
        mem[WORD] = 5;
        pid = start_sleeper(fd, OFFSET, 5, VSHMEM_FOREVER);
        must(ring(fd, info.member, vector), "VSHMEM_RING");
        nap_ms(50);
        check(is_there(pid), "vector %u: a ring does not wake whose word is as expected", vector);
        mem[WORD] = 6;
        must(ring(fd, info.member, vector), "VSHMEM_RING");
        check(end_of(pid) == 0, "vector %u: a ring wakes whose word has changed", vector);
    }
out:
    munmap((void *)mem, info.size);
    close(fd);
}
