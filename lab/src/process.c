/* The life of a process: what serving System V calls costs one that makes hardly any. */
#include "bench.h"

#include <stdio.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SEGMENT = 65536 };

static void fork_and_wait(void *arg, uint64_t n) {
    (void)arg;
    for (uint64_t i = 0; i < n; i++) {
        pid_t pid = fork();
        if (pid < 0)
            die("fork");
        if (pid == 0)
            _exit(0);
        if (waitpid(pid, NULL, 0) != pid)
            die("waitpid");
    }
}

static void exec_and_wait(void *arg, uint64_t n) {
    (void)arg;
    for (uint64_t i = 0; i < n; i++) {
        pid_t pid = fork();
        if (pid < 0)
            die("fork");
        if (pid == 0) {
            (void)execl("/bin/true", "true", (char *)NULL);
            _exit(1);
        }
        int status;
        if (waitpid(pid, &status, 0) != pid || status != 0)
            die("/bin/true");
    }
}

/* Other programs, of a process that has used a semaphore. */
static int executes(void) {
    remove_semaphores(make_semaphores(1, 0600));
    report(median_ns(exec_and_wait, NULL), "ns");
    return 0;
}

static int lives(void) {
    report(median_ns(fork_and_wait, NULL), "ns");
    return 0;
}

/* Of a process that has used a semaphore, but has nothing attached. */
static int lives_after_use(void) {
    remove_semaphores(make_semaphores(1, 0600));
    return lives();
}

static int lives_attached(void) {
    int id = shmget(IPC_PRIVATE, SEGMENT, IPC_CREAT | 0600);
    if (id < 0)
        die("shmget");
    volatile char *at = shmat(id, NULL, 0);
    /* It goes with the last process that has it attached, whatever ends this one. */
    if (shmctl(id, IPC_RMID, NULL) != 0)
        die("shmctl IPC_RMID");
    if (at == (void *)-1)
        die("shmat");
    at[0] = 1;
    return lives();
}

static void make_first_set(void *arg) {
    double *took = arg;
    uint64_t began = now_ns();
    int id = semget(IPC_PRIVATE, 1, IPC_CREAT | 0600);
    *took = (double)(now_ns() - began);
    if (id < 0)
        die("semget");
    remove_semaphores(id);
}

/* The first call of a process whose parent has made none. */
static int first_call(void) {
    enum { MOST = 2000 };
    static double sample[MOST];
    double *took = shared_memory(sizeof *took);
    size_t count = 0;
    uint64_t end = now_ns() + (uint64_t)(bench_seconds * 1e9);
    while (count < 10 || (count < MOST && now_ns() < end)) {
        join(child(make_first_set, took));
        sample[count++] = *took;
    }
    report(median(sample, count), "ns");
    return 0;
}

/* Memory in use after a call of each kind: the process's own, and with what it shares. */
static int resident(void) {
    remove_semaphores(make_semaphores(1, 0600));
    remove_queue(make_queue(0600));
    int id = shmget(IPC_PRIVATE, SEGMENT, IPC_CREAT | 0600);
    if (id < 0 || shmctl(id, IPC_RMID, NULL) != 0)
        die("shmget");
    FILE *status = fopen("/proc/self/status", "r");
    if (status == NULL)
        die("/proc/self/status");
    char line[256];
    long own = 0, all = 0;
    while (fgets(line, sizeof line, status) != NULL) {
        (void)sscanf(line, "RssAnon: %ld", &own);
        (void)sscanf(line, "VmRSS: %ld", &all);
    }
    fclose(status);
    report((double)own, "KiB");
    report((double)all, "KiB");
    return 0;
}

int bench_process(const char *argument) {
    static const struct {
        const char *name;
        int (*run)(void);
    } kinds[] = {
        {"plain", lives},   {"used", lives_after_use}, {"attached", lives_attached},
        {"exec", executes}, {"first", first_call},     {"resident", resident},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(argument, kinds[i].name) == 0)
            return kinds[i].run();
    fprintf(stderr, "bench: process needs plain, used, attached, exec, first or resident\n");
    return 2;
}
