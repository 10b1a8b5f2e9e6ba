// SPDX-License-Identifier: MIT OR Apache-2.0
/* Helpers of the tests in the machine. */
#ifndef GUEST_H
#define GUEST_H

#include "vshmem_ioctl.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

extern const char *device_path;
extern int failures;

/* Prints "ok WHAT" or "FAILED WHAT". */
void check(bool good, const char *what, ...) __attribute__((format(printf, 2, 3)));
/* Checks that a call has failed with the error. */
void check_errno(long result, int error, const char *what);
/* A call that must succeed; else the test ends. */
long must(long result, const char *what);

int open_device(int flags);
struct vshmem_info get_info(int fd);
struct vshmem_identity get_identity(int fd);
bool is_same(struct vshmem_identity one, struct vshmem_identity other);
/* Maps all of it, for reading and writing. */
volatile uint32_t *map_all(int fd, uint64_t size);

int64_t now_ns(void);
void nap_ms(long ms);

/* The ioctls; they return -1 and set errno like any other call. */
int wait_word(int fd, uint64_t offset, uint32_t expected, int64_t deadline);
int wake_word(int fd, uint64_t offset, uint32_t count);
int ring(int fd, uint32_t peer, uint32_t vector);

/* A child that waits: exits with 0 when it was woken, else with errno. */
pid_t start_sleeper(int fd, uint64_t offset, uint32_t expected, int64_t deadline);
/* Waits until it sleeps. */
void until_asleep(pid_t pid);
/* Its exit status; -1 if it still runs after two seconds, 1000 + signal if one has killed it. */
int end_of(pid_t pid);
bool is_there(pid_t pid);

/* Random numbers, of each thread. */
extern __thread uint64_t random_state;
uint64_t random_number(void);
/* Numbers that are often nearly valid. */
uint64_t odd_number(uint64_t size);
/* Writes to a file of sysfs; -1: it was refused. */
int write_to(const char *path, const char *text);

/* The tests. */
void test_mapping(bool doorbell);
void test_waiting(void);
void test_ringing(bool doorbell);
void test_fuzz(int seconds);
void test_local_soak(int rounds);
void test_removal(const char *how);
void test_look(void);
void test_storm(int seconds);
void test_pair(int rounds);

#endif
