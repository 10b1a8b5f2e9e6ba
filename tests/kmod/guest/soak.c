// SPDX-License-Identifier: MIT OR Apache-2.0
/* Many sleeps and wakes, in one machine and across two, and calls at random. */
#define _GNU_SOURCE
#include "guest.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

/* No wait takes so long unless a wake-up was lost. */
#define LOST_NS 10000000000LL

/* Indices of words, in cache lines of their own. */
enum { READY = 512, TURN = 544, TURNS = 576, IDENTITY = 608 };

__thread uint64_t random_state = 88172645463325252ULL;

uint64_t random_number(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static void nothing(int signal) { (void)signal; }

uint64_t odd_number(uint64_t size) {
    switch (random_number() % 6) {
    case 0:
        return random_number();
    case 1:
        return random_number() % size & ~3ULL;
    case 2:
        return size - random_number() % 8;
    case 3:
        return 1ULL << random_number() % 64;
    case 4:
        return -(random_number() % 4);
    default:
        return random_number() % 16;
    }
}

/* Addresses that are not mapped in a process. */
static void *odd_address(uint64_t size) {
    uint64_t number = odd_number(size);

    return (void *)(random_number() % 2 ? number % 65536 : number | 1ULL << 63);
}

static void one_odd_call(int fd, uint64_t size) {
    unsigned int calls[] = {VSHMEM_INFO, VSHMEM_WAIT,     VSHMEM_WAKE,
                            VSHMEM_RING, VSHMEM_IDENTITY, random_number()};
    uint64_t argument[8];
    size_t i, length;
    void *at;

    for (i = 0; i < 8; i++)
        argument[i] = odd_number(size);
    if (random_number() % 16 == 0) {
        length = odd_number(size) % (2 * size);
        at = mmap(NULL, length, random_number() % 4, MAP_SHARED, fd, odd_number(size) & ~4095ULL);
        if (at != MAP_FAILED)
            munmap(at, length);
        return;
    }
    ioctl(fd, calls[random_number() % 6],
          random_number() % 32 ? (void *)argument : odd_address(size));
}

void test_fuzz(int seconds) {
    int fd = open_device(O_RDWR);
    struct sigaction action = {.sa_handler = nothing};
    struct itimerval tick = {{0, 2000}, {0, 2000}}, none = {0};
    uint64_t size = get_info(fd).size;
    int64_t until = now_ns() + seconds * 1000000000LL;
    long calls = 0;

    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &tick, NULL);
    while (now_ns() < until) {
        one_odd_call(fd, size);
        calls++;
    }
    setitimer(ITIMER_REAL, &none, NULL);
    check(get_info(fd).size == size, "%ld calls at random do no harm", calls);
    close(fd);
}

/* Passes a turn back and forth: waits until TURN is odd or even, then increments it. Returns how
 * many wake-ups were lost. */
static int take_turns(int fd, volatile uint32_t *mem, uint32_t parity, int rounds, int peer) {
    uint32_t seen;
    int i, spin;

    for (i = 0; i < rounds; i++) {
        while ((seen = __atomic_load_n(&mem[TURN], __ATOMIC_SEQ_CST)) % 2 != parity) {
            if (wait_word(fd, TURN * 4, seen, now_ns() + LOST_NS) < 0 && errno != EAGAIN)
                return rounds - i;
        }
        /* An occasional pause, so that the other side is woken at every step of its wait. */
        for (spin = i % 8 == 0 ? random_number() % 20000 : 0; spin > 0; spin--)
            __asm__ volatile("" ::: "memory");
        __atomic_store_n(&mem[TURN], seen + 1, __ATOMIC_SEQ_CST);
        if (peer < 0 ? wake_word(fd, TURN * 4, 1) < 0 : ring(fd, peer, 0) < 0)
            return rounds - i;
    }
    return 0;
}

void test_local_soak(int rounds) {
    int fd = open_device(O_RDWR);
    uint64_t size = get_info(fd).size;
    volatile uint32_t *mem = map_all(fd, size);
    int64_t began, took;
    int lost;
    pid_t pid;

    mem[TURN] = 0;
    fflush(stdout);
    began = now_ns();
    pid = must(fork(), "fork");
    if (pid == 0)
        _exit(take_turns(fd, mem, 1, rounds, -1) ? 1 : 0);
    lost = take_turns(fd, mem, 0, rounds, -1);
    took = now_ns() - began;
    check(end_of(pid) == 0 && lost == 0,
          "%d sleeps and wakes in one machine: %.1f us there and back", 2 * rounds,
          took / 1000.0 / rounds);
    munmap((void *)mem, size);
    close(fd);
}

static int compare(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

/* The bare doorbell: both sides sleep each time. */
static void print_round_trip(int fd, volatile uint32_t *mem, int peer) {
    enum { SAMPLES = 1000 };
    static int64_t took[SAMPLES];
    int i;

    for (i = 0; i < SAMPLES; i++) {
        int64_t began = now_ns();

        if (take_turns(fd, mem, 0, 1, peer))
            break;
        while (__atomic_load_n(&mem[TURN], __ATOMIC_SEQ_CST) % 2)
            if (wait_word(fd, TURN * 4, mem[TURN] | 1, began + LOST_NS) < 0 && errno == ETIMEDOUT)
                break;
        took[i] = now_ns() - began;
    }
    qsort(took, i, sizeof(took[0]), compare);
    check(i == SAMPLES,
          "the doorbell there and back: median %.1f us, best %.1f us, 99%% within %.1f us",
          took[i / 2] / 1000.0, took[0] / 1000.0, took[i * 99 / 100] / 1000.0);
}

void test_pair(int rounds) {
    enum { SAMPLES = 1000 };
    int fd = open_device(O_RDWR);
    struct vshmem_info info = get_info(fd);
    volatile uint32_t *mem = map_all(fd, info.size);
    struct vshmem_identity identity = get_identity(fd);
    uint32_t me = info.member, peer = 1 - me;
    int64_t began, took, patience = now_ns() + 60000000000LL;
    int lost;

    check(me < 2, "this is member %u of two", me);
    mem[READY + me] = 1;
    while (!mem[READY + peer] && now_ns() < patience)
        nap_ms(10);
    check(mem[READY + peer], "the other member is there");
    memcpy((void *)(mem + IDENTITY + 4 * me), &identity, sizeof(identity));
    mem[READY + me] = 2;
    while (mem[READY + peer] < 2 && now_ns() < patience)
        nap_ms(10);
    check(memcmp((void *)(mem + IDENTITY + 4 * peer), &identity, sizeof(identity)) != 0,
          "the other member has another identity");
    random_state += me;

    began = now_ns();
    lost = take_turns(fd, mem, me, rounds, peer);
    took = now_ns() - began;
    check(lost == 0,
          "%d sleeps and wakes across two machines: %.1f us there and back, %.0f wakes a second",
          2 * rounds, took / 1000.0 / rounds, 2.0 * rounds / (took / 1e9));
    if (me == 0)
        print_round_trip(fd, mem, peer);
    else
        check(take_turns(fd, mem, 1, SAMPLES, peer) == 0, "%d more, each timed", SAMPLES);
    munmap((void *)mem, info.size);
    close(fd);
}
