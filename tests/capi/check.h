/* What the tests of the library share. A test prints what is wrong and ends with 1. */
#ifndef CHECK_H
#define CHECK_H

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

union semun {
    int val;
    struct semid_ds *buf;
    unsigned short *array;
    struct seminfo *info;
};

struct message {
    long type;
    char text[64];
};

static inline void fail_at(const char *file, int line, const char *what) {
    int error = errno;
    fprintf(stderr, "%s:%d: not so: %s (pid %d, errno %d: %s)\n", file, line, what, (int)getpid(),
            error, strerror(error));
    _exit(1);
}

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition))                                                                          \
            fail_at(__FILE__, __LINE__, #condition);                                               \
    } while (0)

/* The call returns -1 and sets that errno. */
#define FAILS(call, error)                                                                         \
    do {                                                                                           \
        errno = 0;                                                                                 \
        long result_ = (long)(call);                                                               \
        if (result_ != -1 || errno != (error))                                                     \
            fail_at(__FILE__, __LINE__, #call " fails with " #error);                              \
    } while (0)

/* The call returns that value and leaves errno alone. */
#define GIVES(call, value)                                                                         \
    do {                                                                                           \
        errno = 12345;                                                                             \
        long result_ = (long)(call);                                                               \
        if (result_ != (long)(value))                                                              \
            fail_at(__FILE__, __LINE__, #call " gives " #value);                                   \
        if (errno != 12345)                                                                        \
            fail_at(__FILE__, __LINE__, #call " keeps errno");                                     \
    } while (0)

/* A semaphore operation; fits where `struct sembuf *` is wanted. */
#define OP(number, change, flags)                                                                  \
    (&(struct sembuf){.sem_num = (number), .sem_op = (change), .sem_flg = (flags)})

static inline void wait_for_success(pid_t child) {
    int status = 0;
    pid_t got;
    while ((got = waitpid(child, &status, 0)) == -1 && errno == EINTR)
        ;
    CHECK(got == child);
    if (status != 0)
        fprintf(stderr, "child %d ended with status %#x\n", (int)child, status);
    CHECK(status == 0);
}

static inline void nap_ms(long milliseconds) {
    struct timespec t = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    while (nanosleep(&t, &t) == -1 && errno == EINTR)
        ;
}

static inline unsigned long attachments(int id) {
    struct shmid_ds ds;
    CHECK(shmctl(id, IPC_STAT, &ds) == 0);
    return ds.shm_nattch;
}

/* Waits, a few seconds at the most, until a count is right: the dead are noticed in time. */
static inline void wait_for_attachments(int id, unsigned long count) {
    for (int i = 0; i < 500 && attachments(id) != count; i++)
        nap_ms(10);
    if (attachments(id) != count)
        fprintf(stderr, "%lu attachments, not %lu\n", attachments(id), count);
    CHECK(attachments(id) == count);
}

#endif
