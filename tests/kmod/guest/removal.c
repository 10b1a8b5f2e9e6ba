// SPDX-License-Identifier: MIT OR Apache-2.0
/* A device that goes away while it is mapped and waited for. */
#define _GNU_SOURCE
#include "check.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int write_to(const char *path, const char *text) {
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
    check_errno(mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED ? -1 : 0, ENODEV,
                "map it again");
}

static void check_reborn(int old) {
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
    munmap((void *)mem, info.size);
    close(fd);
}

void test_removal(const char *how) {
    int fd = open_device(O_RDWR), i;
    struct vshmem_info info = get_info(fd);
    volatile uint32_t *mem = map_all(fd, info.size);
    pid_t sleepers[3];

    mem[0] = 0x5eed;
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
    check_dead(fd, mem, info.size);
    if (!strcmp(how, "unbind")) {
        must(write_to("/sys/bus/pci/drivers/vshmem/bind", info.pci), "bind");
        check_reborn(fd);
    }
    munmap((void *)mem, info.size);
    check(syscall(SYS_delete_module, "vshmem", O_NONBLOCK) < 0 && errno == EAGAIN,
          "the driver can't be unloaded while a dead file is open");
    close(fd);
}
