/* mlockall locks what a program has attached, and leaves the rest of the pool alone: of a gigabyte,
 * little is in use. */
#include "capi.h"
#include <sys/resource.h>

/* So large that the memory of one that is gone is not kept for the next, which then has none. */
enum { SEGMENT = 9 << 20, LITTLE = 64 << 20 };

static char *attached(void) {
    int id = shmget(IPC_PRIVATE, SEGMENT, 0600);
    char *at = shmat(id, NULL, 0);
    CHECK(id != -1 && at != (char *)-1 && shmctl(id, IPC_RMID, NULL) == 0);
    return at;
}

/* A number of /proc/self/status in KiB, as bytes. */
static long status_of(const char *name) {
    char line[256];
    long kib = -1;
    FILE *status = fopen("/proc/self/status", "r");
    CHECK(status != NULL);
    while (fgets(line, sizeof line, status))
        if (strncmp(line, name, strlen(name)) == 0)
            kib = atol(line + strlen(name) + 1);
    fclose(status);
    CHECK(kib >= 0);
    return kib << 10;
}

/* How much memory the pool has. */
static long pool_memory(void) {
    struct stat stat_;
    CHECK(stat(getenv("VSHMEM_POOL"), &stat_) == 0 && stat_.st_size == 1 << 30);
    return (long)stat_.st_blocks * 512;
}

static int is_resident(char *at) {
    unsigned char pages[SEGMENT / 4096];
    int resident = 0;
    CHECK(mincore(at, SEGMENT, pages) == 0);
    for (int page = 0; page < SEGMENT / 4096; page++)
        resident += pages[page] & 1;
    return resident == SEGMENT / 4096;
}

static void all_is_well(char *segment, int locked) {
    CHECK(is_resident(segment) == locked);
    CHECK(status_of("VmLck") < LITTLE && status_of("VmRSS") < LITTLE && pool_memory() < LITTLE);
}

/* In a child each, for the flags last. */
static void first_attached(void) {
    char *segment = attached();
    all_is_well(segment, 0);
    CHECK(mlockall(MCL_CURRENT) == 0);
    all_is_well(segment, 1);
    all_is_well(attached(), 0);
    CHECK(status_of("VmLck") > SEGMENT && munlockall() == 0 && status_of("VmLck") == 0);
    CHECK(mlockall(MCL_CURRENT | MCL_FUTURE) == 0);
    char *later = attached();
    all_is_well(later, 1);
    char *mapped = mmap(NULL, SEGMENT, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(is_resident(mapped) && shmdt(later) == 0);
    CHECK(mlockall(MCL_CURRENT) == 0); /* ends what was said of the future */
    all_is_well(attached(), 0);
}

static void first_locked(void) {
    CHECK(mlockall(MCL_CURRENT | MCL_FUTURE) == 0);
    all_is_well(attached(), 1);
}

static void on_fault(void) {
    char *segment = attached();
    CHECK(mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) == 0);
    all_is_well(segment, 0);
    memset(segment, 1, SEGMENT);
    all_is_well(segment, 1);
    all_is_well(attached(), 0);
}

static void refused(void) {
    attached();
    FAILS(mlockall(0), EINVAL);
    FAILS(mlockall(MCL_CURRENT | 1 << 20), EINVAL);
    CHECK(status_of("VmLck") == 0);
}

static void beyond_the_limit(void) {
    attached();
    struct rlimit limit = {64 << 10, 64 << 10};
    CHECK(setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    if (geteuid() == 0)
        CHECK(setresuid(65534, 65534, 65534) == 0);
    FAILS(mlockall(MCL_CURRENT), ENOMEM);
}

int main(void) {
    void (*const parts[])(void) = {first_attached, first_locked, on_fault, refused,
                                   beyond_the_limit};
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    /* An ordinary user's limit may be too low for a program and its libraries. */
    int may_lock = geteuid() == 0 || limit.rlim_cur >= LITTLE;
    for (unsigned i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (!may_lock && parts[i] != refused && parts[i] != beyond_the_limit)
            continue;
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            parts[i]();
            _exit(0);
        }
        wait_for_success(child);
    }
    return 0;
}
