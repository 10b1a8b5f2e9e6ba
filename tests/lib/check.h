/* What C programs of all suites check by. The first check that fails says why on the error stream,
 * and ends the process. */
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

/* A test's exit status if it failed; what it said tells why. */
#define STATUS_FAILED 70

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
    dprintf(STDERR_FILENO, "  %s:%d: %s\n", file, line, text);
    _exit(STATUS_FAILED);
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

#endif
