/* The life of a buffer that is mapped twice in a row, with a guard page on either side, as GNU
 * Radio makes it (its vmcircbuf_sysv_shm): what goes over its end goes on at its start. */
#include "bench.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/ipc.h>
#include <sys/shm.h>

enum { PAGE = 4096 };

static int segment(size_t size) {
    int id = shmget(IPC_PRIVATE, size, IPC_CREAT | 0600);
    if (id < 0)
        die("shmget");
    return id;
}

static char *attached(int id, char *at, int flags) {
    char *where = shmat(id, at, flags);
    if (where == (void *)-1 || (at != NULL && where != at))
        die("shmat of a part of a buffer");
    return where;
}

static void detached(const char *at) {
    if (shmdt(at) != 0)
        die("shmdt");
}

static void removed(int id) {
    if (shmctl(id, IPC_RMID, NULL) != 0)
        die("shmctl IPC_RMID");
}

static void lives(void *arg, uint64_t n) {
    const size_t size = *(const size_t *)arg;
    for (uint64_t i = 0; i < n; i++) {
        /* Where there is room for all of it. */
        int whole = segment(2 * size + 2 * (size_t)PAGE);
        int guard = segment(PAGE), buffer = segment(size);
        char *at = attached(whole, NULL, 0);
        removed(whole);
        detached(at);
        char *first = at + PAGE, *second = first + size, *end = second + size;
        attached(guard, at, SHM_RDONLY);
        attached(buffer, first, 0);
        attached(buffer, second, 0);
        attached(guard, end, SHM_RDONLY);
        removed(guard);
        removed(buffer);
        for (size_t page = 0; page < size; page += PAGE)
            second[page] = (char)(i + 1);
        if (*(volatile char *)first != (char)(i + 1)) {
            errno = EIO;
            die("a buffer that is mapped twice");
        }
        detached(at);
        detached(first);
        detached(second);
        detached(end);
    }
}

int bench_doubled(const char *argument) {
    size_t size = (size_t)atol(argument);
    report(median_ns(lives, &size), "ns");
    return 0;
}
