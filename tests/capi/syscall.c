/* The library's syscall() hands on what is not its own exactly as libc's does. */
#include "capi.h"

int main(void) {
    GIVES(syscall(SYS_getpid), getpid());
    FAILS(syscall(SYS_close, 99999), EBADF);
    FAILS(syscall(100000), ENOSYS);
    FAILS(syscall(-1), ENOSYS);

    /* Six arguments, the last one not 0. */
    long page = sysconf(_SC_PAGESIZE);
    int fd = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/exe", O_RDONLY, 0);
    CHECK(fd >= 0);
    char *whole = (char *)syscall(SYS_mmap, NULL, 2 * page, PROT_READ, MAP_PRIVATE, fd, 0L);
    char *second = (char *)syscall(SYS_mmap, NULL, page, PROT_READ, MAP_PRIVATE, fd, page);
    CHECK(whole != MAP_FAILED && second != MAP_FAILED && memcmp(whole + page, second, page) == 0);

    /* A fork by its number. */
    long child = syscall(SYS_clone, SIGCHLD, 0L, 0L, 0L, 0L);
    if (child == 0)
        syscall(SYS_exit_group, 0);
    wait_for_success((pid_t)child);
    return 0;
}
