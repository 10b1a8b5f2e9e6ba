/* In the place of UCX's libucs.so.0: what it says where nobody stands before it. */
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/types.h>

static const char *const names[] = {"ipc", "mnt", "net", "pid", "user", "uts"};

uint64_t ucs_get_system_id(void) { return 0x5ca1ab1e; }

ino_t ucs_sys_get_ns(int kind) {
    char path[64];
    struct stat found;
    if (kind < 0 || kind > 5)
        return 0;
    snprintf(path, sizeof path, "/proc/self/ns/%s", names[kind]);
    return stat(path, &found) == 0 ? found.st_ino : 0;
}

int ucs_sys_ns_is_default(int kind) { return 100 + kind; }

unsigned long ucs_sys_get_proc_create_time(pid_t pid) { return 1000 + (unsigned long)pid; }
