// SPDX-License-Identifier: MIT OR Apache-2.0
/* A device's information, and mapping its memory. */
#define _GNU_SOURCE
#include "guest.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void check_info(int fd, bool doorbell) {
    struct vshmem_info info = get_info(fd);
    char link[200] = "", resource[100];
    struct stat status;

    check(info.abi == VSHMEM_ABI, "the driver has the ABI %u", info.abi);
    check(!!(info.flags & VSHMEM_DOORBELL) == doorbell, "it knows whether there is a doorbell");
    check(info.flags & VSHMEM_CACHED, "mappings are write-back");
    check(info.flags & VSHMEM_HAS_REMAINS, "mappings can remain");
    check(doorbell == (info.vectors > 0), "it has %u vectors", info.vectors);
    check(doorbell ? info.member >= 0 && info.member <= 0xffff : info.member == -1,
          "this is member %d", info.member);
    check(readlink("/sys/class/vshmem/vshmem0/device", link, sizeof(link) - 1) > 0 &&
              strstr(link, info.pci),
          "sysfs leads to the PCI device %s", info.pci);
    snprintf(resource, sizeof(resource), "/sys/bus/pci/devices/%s/resource2", info.pci);
    check(stat(resource, &status) == 0 && (uint64_t)status.st_size == info.size,
          "it has the size of BAR 2: %llu KiB", (unsigned long long)info.size >> 10);
    check(stat(device_path, &status) == 0 && (status.st_mode & 0777) == 0600,
          "only root may open the device file");
}

/* An mmap that must fail with the error, or succeed (0). */
static void check_map(int fd, uint64_t offset, size_t length, int protection, int flags, int error,
                      const char *what) {
    void *at = mmap(NULL, length, protection, flags, fd, offset);

    check_errno(at == MAP_FAILED ? -1 : 0, error, what);
    if (at != MAP_FAILED)
        munmap(at, length);
}

static void check_bounds(int fd, int reading, uint64_t size) {
    const int both = PROT_READ | PROT_WRITE;
    long page = sysconf(_SC_PAGESIZE);

    check_map(fd, size - page, page, both, MAP_SHARED, 0, "map the last page");
    check_map(fd, 0, size + page, both, MAP_SHARED, EINVAL, "map one page more than there is");
    check_map(fd, size - page, 2 * page, both, MAP_SHARED, EINVAL, "map beyond the last page");
    check_map(fd, size, page, both, MAP_SHARED, EINVAL, "map what is behind it");
    check_map(fd, 1ULL << 61, page, both, MAP_SHARED, EINVAL, "map what is far behind it");
    check_map(fd, VSHMEM_REMAINS + size - page, page, both, MAP_SHARED, 0,
              "map the last page so that it remains");
    check_map(fd, VSHMEM_REMAINS + size - page, 2 * page, both, MAP_SHARED, EINVAL,
              "map beyond the last page so that it remains");
    check_map(fd, VSHMEM_REMAINS, page, both, MAP_PRIVATE, EINVAL,
              "map a private copy that remains");
    check_map(reading, VSHMEM_REMAINS, page, both, MAP_SHARED, EACCES,
              "map for writing, so that it remains, what is open for reading");
    check_map(fd, 0, page, both, MAP_PRIVATE, EINVAL, "map a private copy");
    check_map(reading, 0, page, PROT_READ, MAP_PRIVATE, EINVAL, "map a private copy for reading");
    check_map(reading, 0, page, both, MAP_SHARED, EACCES,
              "map for writing what is open for reading");
    check_map(reading, 0, size, PROT_READ, MAP_SHARED, 0, "map for reading");
}

static void check_read_only(int reading) {
    long page = sysconf(_SC_PAGESIZE);
    void *at = mmap(NULL, page, PROT_READ, MAP_SHARED, reading, 0);

    must(at == MAP_FAILED ? -1 : 0, "mmap for reading");
    check_errno(mprotect(at, page, PROT_READ | PROT_WRITE), EACCES, "mprotect to writable");
    check(mremap(at, page, 2 * page, MREMAP_MAYMOVE) == MAP_FAILED,
          "a mapping can't be made longer");
    munmap(at, page);
}

static void check_contents(int fd, uint64_t size) {
    long page = sysconf(_SC_PAGESIZE);
    volatile uint32_t *all = map_all(fd, size), *last;
    uint64_t step = size / 64, words = size / 4, i;
    bool same = true;
    pid_t pid;

    last = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, size - page);
    must(last == MAP_FAILED ? -1 : 0, "mmap of the last page");
    all[words - 1] = 0x600df00d;
    check(last[page / 4 - 1] == 0x600df00d, "two mappings show the same memory");

    for (i = 0; i < 64; i++)
        all[i * step / 4] = 0x1000 + i;
    for (i = 0; i < 64; i++)
        same = same && all[i * step / 4] == 0x1000 + i;
    check(same, "64 places in it keep their values");

    fflush(stdout);
    pid = must(fork(), "fork");
    if (pid == 0) {
        all[1] = all[step / 4] + 1;
        _exit(0);
    }
    check(end_of(pid) == 0 && all[1] == 0x1002, "a child shares the mapping");
    check(mprotect((void *)all, page, PROT_READ) == 0 &&
              mprotect((void *)all, page, PROT_READ | PROT_WRITE) == 0 && (all[0] = 7) == all[0],
          "protection can be changed to and fro");
    munmap((void *)last, page);
    munmap((void *)all, size);
}

void test_mapping(bool doorbell) {
    int fd = open_device(O_RDWR), reading = open_device(O_RDONLY);
    uint64_t size = get_info(fd).size;

    check_info(fd, doorbell);
    check_bounds(fd, reading, size);
    check_read_only(reading);
    check_contents(fd, size);
    check(is_same(get_identity(fd), get_identity(reading)), "every file tells the same identity");
    check_errno(wake_word(reading, 0, 1), EBADF, "wake, on a file open for reading");
    check_errno(ring(reading, 0, 0), EBADF, "ring, on a file open for reading");
    close(reading);
    close(fd);
}

/* Lets the host look at this process's page tables. */
void test_look(void) {
    int fd = open_device(O_RDWR);
    uint64_t size = get_info(fd).size;
    volatile uint32_t *mem = map_all(fd, size);
    int64_t until;

    mem[0] = 1;
    printf("look at %llx\n", (unsigned long long)(uintptr_t)mem);
    until = now_ns() + 3000000000;
    while (now_ns() < until)
        mem[0]++;
    munmap((void *)mem, size);
    close(fd);
}
