/* What the tests of the library share. */
#ifndef CAPI_H
#define CAPI_H

#include "../lib/check.h"
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>

struct message {
    long type;
    char text[64];
};

/* The call returns that value and leaves errno alone. */
#define GIVES(call, value)                                                                         \
    do {                                                                                           \
        errno = 12345;                                                                             \
        long result_ = (long)(call);                                                               \
        if (result_ != (long)(value))                                                              \
            check_failed(__FILE__, __LINE__, "%s gives %ld, not %s", #call, result_, #value);      \
        if (errno != 12345)                                                                        \
            check_failed(__FILE__, __LINE__, "%s changes errno", #call);                           \
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
