/*
 * What the conformance programs share: tests with names, each in a process of its own with a time
 * limit.
 *
 * A program lists its tests with TESTS(...) and prints `ok NAME`, `FAIL NAME: where and what`, or
 * `skip NAME: why`. It exits with 1 if one failed. An argument selects the tests whose names
 * contain it; those that LEFT_OUT names are not run.
 */
#ifndef CHECK_H
#define CHECK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Seconds after which a test counts as stuck. */
#ifndef TIME_LIMIT
#define TIME_LIMIT 60
#endif
/* A test's exit status if it failed or can't be done here; what it printed says why. */
#define STATUS_FAILED 70
#define STATUS_SKIPPED 71

struct test {
    const char *name;
    void (*run)(void);
};

/* The fourth argument of semctl, which the caller has to define. */
union semun {
    int val;
    struct semid_ds *buf;
    unsigned short *array;
    struct seminfo *info;
};

/* Says what went wrong and ends the process: the whole test, in the process that began it. */
__attribute__((noreturn, format(printf, 3, 4), unused)) static void
check_failed(const char *file, int line, const char *format, ...) {
    va_list arguments;
    char text[512];
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    dprintf(STDOUT_FILENO, "  %s:%d: %s\n", file, line, text);
    _exit(STATUS_FAILED);
}

__attribute__((noreturn, unused)) static void skip(const char *why) {
    dprintf(STDOUT_FILENO, "  %s\n", why);
    _exit(STATUS_SKIPPED);
}

/* The condition must hold. */
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition))                                                                          \
            check_failed(__FILE__, __LINE__, "not so: %s", #condition);                            \
    } while (0)

/* Two whole numbers must be equal. */
#define EQUAL(found, wanted)                                                                       \
    do {                                                                                           \
        long long check_found = (long long)(found), check_wanted = (long long)(wanted);            \
        if (check_found != check_wanted)                                                           \
            check_failed(__FILE__, __LINE__, "%s is %lld, not %lld", #found, check_found,          \
                         check_wanted);                                                            \
    } while (0)

/* The call must succeed; its value. */
#define OK(call) check_ok((long)(call), __FILE__, __LINE__, #call)

/* The call must fail with this errno. */
#define FAILS(call, error)                                                                         \
    do {                                                                                           \
        errno = 0;                                                                                 \
        long check_result = (long)(call);                                                          \
        int check_errno = errno;                                                                   \
        if (check_result != -1)                                                                    \
            check_failed(__FILE__, __LINE__, "%s succeeded with %ld, wanted %s", #call,            \
                         check_result, #error);                                                    \
        if (check_errno != (error))                                                                \
            check_failed(__FILE__, __LINE__, "%s failed with %s, wanted %s", #call,                \
                         strerrorname_np(check_errno), #error);                                    \
    } while (0)

__attribute__((unused)) static long check_ok(long result, const char *file, int line,
                                             const char *call) {
    if (result == -1)
        check_failed(file, line, "%s failed with %s", call, strerrorname_np(errno));
    return result;
}

__attribute__((unused)) static double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

__attribute__((unused)) static void nap_ms(long ms) {
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&time, &time) != 0 && errno == EINTR)
        ;
}

/* Forks; the child does the work and exits with 0 if nothing failed. */
__attribute__((unused)) static pid_t child(void (*work)(void *), void *argument) {
    pid_t pid = (pid_t)OK(fork());
    if (pid == 0) {
        work(argument);
        _exit(0);
    }
    return pid;
}

/* Waits until a child, which does nothing else that takes long, sleeps in its call: it is found
 * asleep again and again. A fixed nap is too short where there are many processes for a processor.
 */
__attribute__((unused)) static void sleeps(pid_t pid) {
    char path[40];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    for (int found = 0; found < 5; nap_ms(2)) {
        char state = 0;
        FILE *file = fopen(path, "re");
        CHECK(file && fscanf(file, "%*d (%*[^)]) %c", &state) == 1);
        fclose(file);
        CHECK(state != 'Z');
        found = state == 'S' ? found + 1 : 0;
    }
}

/* Waits for a child that must end with this exit status. */
__attribute__((unused)) static void joined(pid_t pid, int wanted) {
    int status;
    EQUAL(OK(waitpid(pid, &status, 0)), pid);
    if (WIFSIGNALED(status))
        check_failed(__FILE__, __LINE__, "a child died of signal %d", WTERMSIG(status));
    if (WEXITSTATUS(status) == STATUS_FAILED)
        _exit(STATUS_FAILED); /* It has said why. */
    EQUAL(WEXITSTATUS(status), wanted);
}

__attribute__((unused)) static void killed(pid_t pid) {
    int status;
    OK(kill(pid, SIGKILL));
    EQUAL(OK(waitpid(pid, &status, 0)), pid);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* Installs a handler; SA_RESTART makes no difference to these calls. */
__attribute__((unused)) static void handle(int number, void (*handler)(int)) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    OK(sigaction(number, &action, NULL));
}

__attribute__((unused)) static void do_nothing(int number) { (void)number; }

__attribute__((unused)) static int run_test(const struct test *test) {
    int status;
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        setpgid(0, 0);
        test->run();
        _exit(0);
    }
    setpgid(pid, pid);
    double began = seconds_now();
    while (waitpid(pid, &status, WNOHANG) == 0) {
        if (seconds_now() - began > TIME_LIMIT) {
            kill(-pid, SIGKILL);
            waitpid(pid, &status, 0);
            printf("FAIL %s: stuck for %d s\n", test->name, TIME_LIMIT);
            return 1;
        }
        nap_ms(1);
    }
    kill(-pid, SIGKILL); /* Children that a failed test has left. */
    if (WIFSIGNALED(status))
        printf("FAIL %s: signal %d\n", test->name, WTERMSIG(status));
    else if (WEXITSTATUS(status) == STATUS_SKIPPED)
        printf("skip %s\n", test->name);
    else if (WEXITSTATUS(status) != 0)
        printf("FAIL %s\n", test->name);
    else
        printf("ok %s\n", test->name);
    return WIFSIGNALED(status) ||
           (WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != STATUS_SKIPPED);
}

/* Is the name one of those in LEFT_OUT, which blanks separate? */
__attribute__((unused)) static int is_left_out(const char *name) {
    const char *names = getenv("LEFT_OUT");
    size_t length = strlen(name);
    for (const char *at = names; at && (at = strstr(at, name)) != NULL; at += length)
        if ((at == names || at[-1] == ' ') && (at[length] == ' ' || at[length] == 0))
            return 1;
    return 0;
}

__attribute__((unused)) static int run_tests(const struct test *tests, size_t count,
                                             const char *wanted) {
    int failed = 0;
    for (size_t i = 0; i < count; i++)
        if ((wanted == NULL || strstr(tests[i].name, wanted) != NULL) &&
            !is_left_out(tests[i].name))
            failed += run_test(&tests[i]);
    return failed > 0;
}

#define TESTS(...)                                                                                 \
    int main(int argc, char **argv) {                                                              \
        static const struct test tests[] = {__VA_ARGS__};                                          \
        return run_tests(tests, sizeof tests / sizeof *tests, argc > 1 ? argv[1] : NULL);          \
    }

#endif
