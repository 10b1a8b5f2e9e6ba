/*
 * vshmem.h: System V IPC in pools that processes, containers and virtual machines share.
 *
 * Programs that use <sys/shm.h>, <sys/sem.h> and <sys/msg.h> need none of this: under
 * LD_PRELOAD=libvshmem.so they run unchanged. This header is for programs that want Vshmem by name,
 * beside the kernel's own System V IPC. Link with -lvshmem.
 *
 * Which pool
 *   Calls go to the pool that the environment variable VSHMEM_POOL names (default: "default"),
 *   until vshm_pool_use() chooses another. A name is looked up among the pools that this machine
 *   was given by its host, else among the user's local pools; a path (with a slash) is a local
 *   pool's file. A local pool that VSHMEM_POOL names and that doesn't exist is made at the first
 *   call, except by name in a machine that was given pools: sparse, mode 0600, of VSHMEM_POOL_SIZE
 *   bytes (K, M, G, T may follow; default: 1G, less on a small file system).
 *
 * One pool at a time
 *   All calls of a process go to its current pool. Ids mean something only in the pool that they
 *   came from: use them while that pool is the current one. Three things know their pool by
 *   themselves: attached segments (vshm_shmdt may be called at any time), barriers, and SEM_UNDO
 *   adjustments.
 *
 * Errors
 *   A call that fails returns -1, or a null pointer where it says so, and sets errno;
 *   vshm_last_error() explains it. A call that succeeds leaves errno as it is. errno values are
 *   those of the manual pages of the calls with the same name. Besides, any call may fail because
 *   the pool can't be had:
 *     EINVAL  VSHMEM_POOL, VSHMEM_KEYS or VSHMEM_POOL_SIZE can't be understood; or the file is
 *             no pool
 *     ENOENT  this machine was given no pool of that name
 *     EACCES  the pool belongs to another user
 *     ENOMEM  no memory, address space or descriptor to open it
 *     ENOSPC  no room to make it, or no room in it for another process
 *     ENOSYS  /proc is not mounted, so the kernel can't be told from others
 *
 * Threads and signals
 *   All functions may be called from any thread. All but the pool and barrier functions may be
 *   called from signal handlers, before main, from exit handlers, and in the child of a threaded
 *   process's fork. None of them is a cancellation point.
 */
#ifndef VSHMEM_H
#define VSHMEM_H

#include <stddef.h>
#include <stdint.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/types.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

struct timespec; /* strict C89 leaves it out of <time.h> */

/* The library's version, as in "0.1.0". */
const char *vshm_version(void);

/*
 * Why the calling thread's last failing call of this library failed, as a sentence; "" if none
 * failed yet. Calls with libc's names that the library took count too. Valid until the thread calls
 * this again.
 */
const char *vshm_last_error(void);

/*
 * The twelve calls of System V IPC on the current pool, whatever the key. Arguments, results and
 * errno values are those of shmget(2), shmop(2), shmctl(2), semget(2), semop(2), semctl(2),
 * msgget(2), msgop(2) and msgctl(2).
 */
int vshm_shmget(key_t key, size_t size, int shmflg);
void *vshm_shmat(int shmid, const void *shmaddr, int shmflg);
int vshm_shmdt(const void *shmaddr);
int vshm_shmctl(int shmid, int cmd, struct shmid_ds *buf);

int vshm_semget(key_t key, int nsems, int semflg);
int vshm_semop(int semid, struct sembuf *sops, size_t nsops);
int vshm_semtimedop(int semid, struct sembuf *sops, size_t nsops, const struct timespec *timeout);
int vshm_semctl(int semid, int semnum, int cmd, ...);

int vshm_msgget(key_t key, int msgflg);
int vshm_msgsnd(int msqid, const void *msgp, size_t msgsz, int msgflg);
ssize_t vshm_msgrcv(int msqid, void *msgp, size_t msgsz, long msgtyp, int msgflg);
int vshm_msgctl(int msqid, int cmd, struct msqid_ds *buf);

/* A pool that was opened by name, beside the one that the environment names. */
typedef struct vshm_pool vshm_pool;

/*
 * Makes a local pool, given by name or path, of `size` bytes (0: 1 GiB, less on a small file
 * system), which only take memory as they are used, with the permissions `mode` whatever the umask
 * is. The pool's System V limits are those that the running kernel has in /proc/sys/kernel.
 *   EEXIST  there is one already, or this machine was given one of that name
 *   EINVAL  not a name; size below 1 MiB or above 1 TiB
 *   EACCES, ENOENT, ENOSPC, ENOMEM  as for making a file
 */
int vshm_pool_create(const char *pool, uint64_t size, mode_t mode);

/*
 * Opens a pool that exists, given by name or path; up to seven at once. Calls go there after
 * vshm_pool_use(). Returns a null pointer on failure.
 *   ENOENT  there is no such pool
 *   EMFILE  seven are open
 */
vshm_pool *vshm_pool_open(const char *pool);

/* Makes a pool the current one of the process, for all its threads; NULL: the one that VSHMEM_POOL
 * names. */
int vshm_pool_use(vshm_pool *pool);

/*
 * Closes a pool. SEM_UNDO adjustments of the process in it are undone. No thread may be inside a
 * call on this pool, nor use the handle afterwards.
 *   EBUSY   it is the current pool, or segments or barriers of it are attached
 */
int vshm_pool_close(vshm_pool *pool);

/*
 * Writes the UUID of the current pool, 16 bytes in the order in which they are printed. Processes
 * of whatever machine or container that get the same one use the same pool. Only a copy of a
 * pool's file has the UUID of another pool.
 *   ENODATA  the pool has none: an older version made it, or a machine that had just started
 */
int vshm_pool_uuid(uint8_t *uuid);

/* The number of the caller's kernel among those that use the current pool, from 0 on; unlike any
 * other's that lives. */
int vshm_pool_member(void);

/*
 * Whether a process with that pid, of any kernel and PID name space, lives and uses the current
 * pool: 1, or 0. As several may have the same pid, those count first of whose removed segments the
 * caller has one attached: each of them has to live. A process of another machine that was killed
 * counts as alive until that machine's front end, or another process there, has cleaned up after
 * it, or its machine is known to be dead.
 */
int vshm_process_lives(pid_t pid);

/* Whether System V calls with libc's names go to a pool where they have this key (VSHMEM_KEYS): 1,
 * or 0. Opens no pool. */
int vshm_takes_key(key_t key);

/* One party's view of a barrier for a fixed number of parties, processes or threads, on any of the
 * machines. */
typedef struct vshm_barrier vshm_barrier;

/*
 * Finds or makes the barrier of that key in the current pool and takes part as one of `parties`
 * (1 to 480). The key's segment belongs to the barrier and holds a copy of the values of
 * reductions (33 KiB for each party). Each party opens the barrier itself, threads and forked
 * children too. Returns a null pointer on failure.
 *   EINVAL  the key is IPC_PRIVATE or belongs to something else, or the number differs from the
 *           others', or their library is of version 0.2.0 or older
 *   EBUSY   all parties are there already
 */
vshm_barrier *vshm_barrier_open(key_t key, unsigned parties);

/* The caller's number among the parties, from 0 on; unlike any other party's. */
int vshm_barrier_seat(vshm_barrier *barrier);

/*
 * Waits until all parties have called it. Returns 1 to one of them, 0 to the others. Signal
 * handlers run, but don't end the wait. What a party wrote to shared memory before it arrived is
 * seen by all after the wait.
 *   ETIMEDOUT   `timeout`, a span of time, is over (NULL: wait for ever); the caller has not
 *               arrived
 *   EOWNERDEAD  another party died; the caller has not arrived. vshm_barrier_open() gives the seat
 *               of the dead to the party that opens next
 */
int vshm_barrier_wait(vshm_barrier *barrier, const struct timespec *timeout);

/* Gives the caller's seat up. The barrier itself stays until it is removed. */
int vshm_barrier_close(vshm_barrier *barrier);

/*
 * Removes the barrier of that key from the current pool: new parties find a new one, those inside
 * go on with the old one.
 *   EINVAL  the key belongs to something else
 */
int vshm_barrier_remove(key_t key);

/* How values are combined. */
enum { VSHM_SUM = 0, VSHM_MIN = 1, VSHM_MAX = 2 };

/*
 * Reduction to all: every party passes an array of as many values and the same operation, and
 * finds in it, for each index, the combination of all parties' values. Values are combined in the
 * order of seats, so all parties get the same bits. Integers wrap around; where one value of two
 * is not a number, minimum and maximum are the other.
 * Waits like vshm_barrier_wait(), with the timeout for each 2048 values; after an error the
 * array's contents are undefined, and the parties may be out of step: close the barrier, remove
 * it, and open another.
 */
int vshm_reduce_double(vshm_barrier *barrier, double *values, size_t count, int operation,
                       const struct timespec *timeout);
int vshm_reduce_int64(vshm_barrier *barrier, int64_t *values, size_t count, int operation,
                      const struct timespec *timeout);

#ifdef __cplusplus
}
#endif

#endif
