// SPDX-License-Identifier: MIT OR Apache-2.0
/* Helpers of the tests in the machine, and running one of them. */
#define _GNU_SOURCE
#include "guest.h"

#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

const char *device_path = "/dev/vshmem0";
int failures;

void check(bool good, const char *what, ...) {
    va_list arguments;

    printf(good ? "ok      " : "FAILED  ");
    va_start(arguments, what);
    vprintf(what, arguments);
    va_end(arguments);
    printf("\n");
    failures += !good;
}

void check_errno(long result, int error, const char *what) {
    int got = result < 0 ? errno : 0;

    if (got == error)
        check(true, "%s: %s", what, strerror(error));
    else
        check(false, "%s: %s expected, got %s (%ld)", what, strerror(error), strerror(got), result);
}

long must(long result, const char *what) {
    if (result < 0) {
        check(false, "%s: %s", what, strerror(errno));
        exit(1);
    }
    return result;
}

int open_device(int flags) { return must(open(device_path, flags | O_CLOEXEC), device_path); }

struct vshmem_info get_info(int fd) {
    struct vshmem_info info;

    memset(&info, 0xff, sizeof(info));
    must(ioctl(fd, VSHMEM_INFO, &info), "VSHMEM_INFO");
    return info;
}

struct vshmem_identity get_identity(int fd) {
    struct vshmem_identity identity;

    memset(&identity, 0, sizeof(identity));
    must(ioctl(fd, VSHMEM_IDENTITY, &identity), "VSHMEM_IDENTITY");
    return identity;
}

bool is_same(struct vshmem_identity one, struct vshmem_identity other) {
    return !memcmp(&one, &other, sizeof(one));
}

volatile uint32_t *map_all(int fd, uint64_t size) {
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    must(memory == MAP_FAILED ? -1 : 0, "mmap of all");
    return memory;
}

int64_t now_ns(void) {
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

void nap_ms(long ms) {
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};

    nanosleep(&t, NULL);
}

int wait_word(int fd, uint64_t offset, uint32_t expected, int64_t deadline) {
    struct vshmem_wait w = {.offset = offset, .expected = expected, .deadline = deadline};

    return ioctl(fd, VSHMEM_WAIT, &w);
}

int wake_word(int fd, uint64_t offset, uint32_t count) {
    struct vshmem_wake w = {.offset = offset, .count = count};

    return ioctl(fd, VSHMEM_WAKE, &w);
}

int ring(int fd, uint32_t peer, uint32_t vector) {
    struct vshmem_ring r = {.peer = peer, .vector = (__u16)vector};

    return ioctl(fd, VSHMEM_RING, &r);
}

pid_t start_sleeper(int fd, uint64_t offset, uint32_t expected, int64_t deadline) {
    pid_t pid;

    fflush(stdout);
    pid = must(fork(), "fork");
    if (pid == 0)
        _exit(wait_word(fd, offset, expected, deadline) < 0 ? errno : 0);
    until_asleep(pid);
    return pid;
}

/* The state letter that /proc has for it. */
static char state_of(pid_t pid) {
    char path[40], line[200], *end;
    size_t got;
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    file = fopen(path, "r");
    if (!file)
        return 'X';
    got = fread(line, 1, sizeof(line) - 1, file);
    fclose(file);
    line[got] = 0;
    end = strrchr(line, ')');
    return end ? end[2] : 'X';
}

void until_asleep(pid_t pid) {
    int i;

    for (i = 0; i < 2000 && state_of(pid) == 'R'; i++)
        nap_ms(1);
    nap_ms(5);
}

int end_of(pid_t pid) {
    int status, i;

    for (i = 0; i < 2000; i++) {
        if (waitpid(pid, &status, WNOHANG) == pid)
            return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
        nap_ms(1);
    }
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    return -1;
}

bool is_there(pid_t pid) { return waitpid(pid, NULL, WNOHANG) == 0; }

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "";
    bool doorbell = argc > 2 && !strcmp(argv[2], "doorbell");

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!strcmp(name, "alone")) {
        test_mapping(doorbell);
        test_waiting();
        test_ringing(doorbell);
        test_fuzz(argc > 3 ? atoi(argv[3]) : 3);
        test_local_soak(argc > 4 ? atoi(argv[4]) : 10000);
    } else if (!strcmp(name, "removal") && argc > 2) {
        test_removal(argv[2]);
    } else if (!strcmp(name, "storm") && argc > 2) {
        test_storm(atoi(argv[2]));
    } else if (!strcmp(name, "look")) {
        test_look();
    } else if (!strcmp(name, "pair") && argc > 2) {
        test_pair(atoi(argv[2]));
    } else {
        fprintf(stderr, "usage: guest alone plain|doorbell [SECONDS [ROUNDS]] | removal HOW | look "
                        "| pair ROUNDS | storm SECONDS\n");
        return 2;
    }
    return failures != 0;
}
