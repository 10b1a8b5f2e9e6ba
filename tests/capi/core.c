/* A core dump holds what is attached, by the default filter, and not the rest of the pool. */
#include "capi.h"
#include <dirent.h>
#include <sys/resource.h>

enum { SEGMENT = 64 << 10, LITTLE = 32 << 20, MARK = 20 };

/* Written byte by byte, so that it stands in memory nowhere else. */
static void mark(volatile char *at) {
    for (volatile int i = 0; i < MARK; i++)
        at[i] = "ABCDEFGHIJKLMNOPQRST"[MARK - 1 - i] + 1;
}

static void crash(void) {
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_CORE, &limit) == 0);
    limit.rlim_cur = limit.rlim_max;
    CHECK(setrlimit(RLIMIT_CORE, &limit) == 0);
    int segment = shmget(IPC_PRIVATE, SEGMENT, 0600);
    char *at = shmat(segment, NULL, 0);
    CHECK(segment != -1 && at != (char *)-1 && shmctl(segment, IPC_RMID, NULL) == 0);
    mark(at + 5000);
    abort();
}

/* The only file in the folder. */
static int open_core(void) {
    DIR *folder = opendir(".");
    struct dirent *entry;
    CHECK(folder != NULL);
    while ((entry = readdir(folder)) != NULL && entry->d_name[0] == '.')
        ;
    int fd = entry ? open(entry->d_name, O_RDONLY) : -1;
    CHECK(entry == NULL || unlink(entry->d_name) == 0);
    closedir(folder);
    return fd;
}

int main(int count, char **arguments) {
    CHECK(count == 2 && chdir(arguments[1]) == 0);
    pid_t child = fork();
    if (child == 0)
        crash();
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) &&
          WTERMSIG(status) == SIGABRT);
    int fd = open_core();
    CHECK(fd != -1);
    struct stat core;
    CHECK(fstat(fd, &core) == 0 && core.st_size < LITTLE);
    char needle[MARK], *at = mmap(NULL, core.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    mark(needle);
    CHECK(at != MAP_FAILED && memmem(at, core.st_size, needle, MARK) != NULL);
    return 0;
}
