/* Opening files, where the library stands before libc: `opens FOLDER`. With VSHMEM_POOL=bad the
 * pool can't be had. */
#include "capi.h"
#include <dlfcn.h>
#include <sys/resource.h>

static const char listing[] = "/proc/sysvipc/sem";

/* The descriptors that the process has. */
static int descriptors(void) {
    int count = 0;
    for (int fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) != -1;
    return count;
}

/* A library may open files in a thread while it is loaded. */
static void while_a_library_is_loaded(const char *folder) {
    char path[4096];
    snprintf(path, sizeof path, "%s/thread.so", folder);
    void *library = dlopen(path, RTLD_NOW);
    if (!library)
        fprintf(stderr, "%s\n", dlerror());
    CHECK(library != NULL);
}

/* An error of the loader's is still there after a file was opened. */
static void the_loader_s_error_stays(void) {
    CHECK(dlopen("/nonexistent.so", RTLD_NOW) == NULL);
    close(open("/dev/null", O_RDONLY));
    FILE *file = fopen("/dev/null", "re");
    CHECK(file != NULL && fclose(file) == 0);
    const char *why = dlerror();
    CHECK(why != NULL && strstr(why, "/nonexistent.so") != NULL);
}

/* Where the process may have no longer file, or no further descriptor, the call says so. */
static void limits(void) {
    close(open(listing, O_RDONLY)); /* A pool that is open has descriptors of its own. */
    const int before = descriptors();
    struct rlimit old, none = {0, RLIM_INFINITY};
    CHECK(getrlimit(RLIMIT_FSIZE, &old) == 0);
    none.rlim_max = old.rlim_max;
    CHECK(setrlimit(RLIMIT_FSIZE, &none) == 0);
    FAILS(open(listing, O_RDONLY), EFBIG);
    errno = 0;
    CHECK(fopen(listing, "re") == NULL && errno == EFBIG);
    CHECK(setrlimit(RLIMIT_FSIZE, &old) == 0);
    CHECK(getrlimit(RLIMIT_NOFILE, &old) == 0);
    const int next = dup(0);
    close(next);
    struct rlimit one = {(rlim_t)next + 1, old.rlim_max};
    CHECK(setrlimit(RLIMIT_NOFILE, &one) == 0);
    FAILS(open(listing, O_RDONLY), EMFILE);
    CHECK(setrlimit(RLIMIT_NOFILE, &old) == 0);
    CHECK(descriptors() == before);
    const int fd = open(listing, O_RDONLY);
    CHECK(fd >= 0 && close(fd) == 0 && descriptors() == before);
}

/* Also by libc's own handle, as Python's ctypes has it. */
static void by_libc_s_handle(void) {
    const int set = semget(IPC_PRIVATE, 1, 0600);
    void *libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
    CHECK(set >= 0 && libc != NULL);
    FILE *(*opens)(const char *, const char *) =
        (FILE * (*)(const char *, const char *)) dlsym(libc, "fopen");
    CHECK(opens != NULL);
    FILE *file = opens(listing, "re");
    CHECK(file != NULL);
    char line[256];
    int found = 0;
    for (int at; fgets(line, sizeof line, file) != NULL;)
        found += sscanf(line, "%*d %d", &at) == 1 && at == set;
    CHECK(found == 1 && fclose(file) == 0);
    GIVES(semctl(set, 0, IPC_RMID), 0);
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    while_a_library_is_loaded(arguments[1]);
    the_loader_s_error_stays();
    if (strcmp(getenv("VSHMEM_POOL"), "no such pool") == 0) {
        FAILS(open(listing, O_RDONLY), EINVAL);
        FAILS(open("/proc/sys/kernel/shmmax", O_RDONLY), EINVAL);
        const int fd = open("/proc/sys/kernel/ostype", O_RDONLY);
        CHECK(fd >= 0 && close(fd) == 0);
        return 0;
    }
    limits();
    by_libc_s_handle();
    return 0;
}
