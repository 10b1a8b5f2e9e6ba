// SPDX-License-Identifier: MIT OR Apache-2.0
/* A device is removed while it is mapped and waited for. */
#define _GNU_SOURCE
#include "guest.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

int write_to(const char *path, const char *text) {
    int fd = open(path, O_WRONLY), result;

    if (fd < 0)
        return -1;
    result = write(fd, text, strlen(text)) < 0 ? -1 : 0;
    close(fd);
    return result;
}

/* Whether touching the word kills a child, by which signal. */
static int touch(volatile uint32_t *word) {
    pid_t pid;

    fflush(stdout);
    pid = must(fork(), "fork");
    if (pid == 0) {
        (void)*word;
        _exit(0);
    }
    return end_of(pid);
}

/* Until the device file has gone. */
static bool goes_away(void) {
    int i;

    for (i = 0; i < 3000 && access(device_path, F_OK) == 0; i++)
        nap_ms(10);
    return access(device_path, F_OK) < 0;
}

static void check_dead(int fd, volatile uint32_t *mem, uint64_t size) {
    struct vshmem_info info;

    check(touch(mem) == 1000 + SIGBUS, "a page that was in use raises SIGBUS");
    check(touch(mem + size / 8) == 1000 + SIGBUS, "a page that was not in use raises SIGBUS");
    check_errno(wait_word(fd, 0, mem == NULL, VSHMEM_FOREVER), ENODEV, "wait");
    check_errno(wake_word(fd, 0, 1), ENODEV, "wake");
    check_errno(ring(fd, 0, 0), ENODEV, "ring");
    check_errno(ioctl(fd, VSHMEM_INFO, &info), ENODEV, "ask");
    check_errno(ioctl(fd, VSHMEM_IDENTITY, &info), ENODEV, "ask for the identity");
    check_errno(mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED ? -1 : 0, ENODEV,
                "map it again");
}

static volatile uint32_t *map_remaining(int fd, uint64_t size) {
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, VSHMEM_REMAINS);

    must(at == MAP_FAILED ? -1 : 0, "mmap that remains");
    return at;
}

/* A child that uses a mapping that remains until it reads as zeros; then it exits with 0. */
static pid_t start_worker(volatile uint32_t *mem) {
    int64_t until = now_ns() + 60000000000LL;
    pid_t pid;

    fflush(stdout);
    pid = must(fork(), "fork");
    if (pid)
        return pid;
    while (mem[0] == 0x5eed && now_ns() < until)
        __atomic_fetch_add(&mem[1024], 1, __ATOMIC_SEQ_CST);
    _exit(mem[0] != 0);
}

/* Every page reads as zeros, and takes what this process writes. */
static void check_remains(volatile uint32_t *mem, uint64_t size) {
    uint64_t words = size / 4, step = words / 64, i;
    uint32_t sum = 0;
    pid_t pid;

    for (i = 0; i < 64; i++)
        sum |= mem[i * step] | mem[i * step + 1];
    check(sum == 0 && mem[words - 1] == 0, "a mapping that remains shows zeros");
    for (i = 0; i < 64; i++)
        __atomic_fetch_add(&mem[i * step], i + 1, __ATOMIC_SEQ_CST);
    for (i = 0; i < 64; i++)
        sum |= mem[i * step] ^ (i + 1);
    check(sum == 0, "it takes what is written");
    fflush(stdout);
    pid = must(fork(), "fork");
    if (pid == 0) {
        mem[2048] = 5;
        _exit(mem[0] != 1 || mem[2048] != 5);
    }
    check(end_of(pid) == 0, "a child can use it, too");
    check(mprotect((void *)mem, size, PROT_READ) == 0 && mem[0] == 1 &&
              mprotect((void *)mem, size, PROT_READ | PROT_WRITE) == 0 && (mem[0] = 2) == mem[0],
          "its protection can be changed");
}

/* Maps it by a device file of another name, as containers have. */
static volatile uint32_t *map_by_other_name(uint64_t size) {
    static const char other[] = "/other";
    volatile uint32_t *mem;
    struct stat status;
    int fd;

    must(stat(device_path, &status), device_path);
    must(mknod(other, S_IFCHR | 0600, status.st_rdev), "mknod");
    fd = must(open(other, O_RDWR | O_CLOEXEC), other);
    mem = map_all(fd, size);
    close(fd);
    unlink(other);
    return mem;
}

static void check_reborn(int old, struct vshmem_identity before) {
    struct vshmem_info info;
    volatile uint32_t *mem;
    int i, fd;

    /* The dead device keeps its number until its last file is closed. */
    device_path = "/dev/vshmem1";
    for (i = 0; i < 300 && access(device_path, F_OK) < 0; i++)
        nap_ms(10);
    fd = open_device(O_RDWR);
    info = get_info(fd);
    mem = map_all(fd, info.size);
    check(mem[0] == 0x5eed, "the device comes back with what was in it");
    check_errno(ioctl(old, VSHMEM_INFO, &info), ENODEV, "the file from before stays dead");
    check(!is_same(get_identity(fd), before), "a driver that is bound again has another identity");
    munmap((void *)mem, info.size);
    close(fd);
}

void test_removal(const char *how) {
    int fd = open_device(O_RDWR), i;
    struct vshmem_info info = get_info(fd);
    struct vshmem_identity identity = get_identity(fd);
    volatile uint32_t *mem = map_all(fd, info.size);
    volatile uint32_t *other = map_by_other_name(info.size);
    volatile uint32_t *remaining = map_remaining(fd, info.size);
    pid_t sleepers[3], worker;

    mem[0] = 0x5eed;
    check(other[0] == 0x5eed, "a file of another name shows the same memory");
    check(remaining[0] == 0x5eed, "a mapping that can remain shows the same memory");
    worker = start_worker(remaining);
    check(syscall(SYS_delete_module, "vshmem", O_NONBLOCK) < 0 && errno == EAGAIN,
          "the driver can't be unloaded while its device is mapped");
    for (i = 0; i < 3; i++)
        sleepers[i] = start_sleeper(fd, 0, 0x5eed, i ? VSHMEM_FOREVER : now_ns() + 60000000000LL);
    if (!strcmp(how, "unbind")) {
        must(write_to("/sys/bus/pci/drivers/vshmem/unbind", info.pci), "unbind");
    } else {
        printf("unplug now\n");
    }
    check(goes_away(), "the device file goes away");
    for (i = 0; i < 3; i++)
        check(end_of(sleepers[i]) == ENODEV, "sleeper %d is woken with ENODEV", i + 1);
    check(end_of(worker) == 0, "a process with a mapping that remains is not killed");
    check_dead(fd, mem, info.size);
    check(touch(other) == 1000 + SIGBUS, "a page that was mapped by another name raises SIGBUS");
    check_remains(remaining, info.size);
    if (!strcmp(how, "unbind")) {
        must(write_to("/sys/bus/pci/drivers/vshmem/bind", info.pci), "bind");
        check_reborn(fd, identity);
    }
    munmap((void *)mem, info.size);
    munmap((void *)other, info.size);
    munmap((void *)remaining, info.size);
    check(syscall(SYS_delete_module, "vshmem", O_NONBLOCK) < 0 && errno == EAGAIN,
          "the driver can't be unloaded while a dead file is open");
    close(fd);
}
