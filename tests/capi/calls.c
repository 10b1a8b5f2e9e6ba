/*
 * Every call, every command, on a pool. Compiled three times: with libc's names, with the names of
 * vshmem.h (NAMED), and through syscall() (NUMBERED).
 */
#include "capi.h"

#ifdef NAMED
#include <vshmem.h>
#define shmget vshm_shmget
#define shmat vshm_shmat
#define shmdt vshm_shmdt
#define shmctl vshm_shmctl
#define semget vshm_semget
#define semop vshm_semop
#define semtimedop vshm_semtimedop
#define semctl vshm_semctl
#define msgget vshm_msgget
#define msgsnd vshm_msgsnd
#define msgrcv vshm_msgrcv
#define msgctl vshm_msgctl
#endif

#ifdef NUMBERED
#define shmget(key, size, flags) (int)syscall(SYS_shmget, key, size, flags)
#define shmat(id, addr, flags) (void *)syscall(SYS_shmat, id, addr, flags)
#define shmdt(addr) (int)syscall(SYS_shmdt, addr)
#define shmctl(id, command, buf) (int)syscall(SYS_shmctl, id, command, buf)
#define semget(key, count, flags) (int)syscall(SYS_semget, key, count, flags)
#define semop(id, sops, count) (int)syscall(SYS_semop, id, sops, (size_t)(count))
#define semtimedop(id, sops, count, t) (int)syscall(SYS_semtimedop, id, sops, (size_t)(count), t)
#define semctl(id, number, ...) (int)syscall(SYS_semctl, id, number, __VA_ARGS__)
#define msgget(key, flags) (int)syscall(SYS_msgget, key, flags)
#define msgsnd(id, m, size, flags) (int)syscall(SYS_msgsnd, id, m, (size_t)(size), flags)
#define msgrcv(id, m, size, type, flags)                                                           \
    (ssize_t) syscall(SYS_msgrcv, id, m, (size_t)(size), (long)(type), flags)
#define msgctl(id, command, buf) (int)syscall(SYS_msgctl, id, command, buf)
#endif

#define OURS(id) ((id) >= 0 && ((id)&0x40000000))
enum { KEY = 0x5e9 };

static void segments(void) {
    struct shmid_ds ds;
    struct shminfo limits;
    struct shm_info used;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    FAILS(shmget(KEY, 100, 0600), ENOENT);
    FAILS(shmget(KEY, 0, IPC_CREAT | 0600), EINVAL);
    int id = shmget(KEY, page + 1, IPC_CREAT | IPC_EXCL | 0640);
    CHECK(OURS(id));
    FAILS(shmget(KEY, 100, IPC_CREAT | IPC_EXCL | 0600), EEXIST);
    GIVES(shmget(KEY, 100, 0), id);
    FAILS(shmget(KEY, page + 2, 0), EINVAL);

    FAILS(shmat(id, (void *)0x1001, 0), EINVAL);
    FAILS(shmat(id, NULL, SHM_REMAP), EINVAL);
    FAILS(shmat(id + 1, NULL, 0), EINVAL);
    FAILS(shmat(-1, NULL, 0), EINVAL);
    errno = 12345;
    char *p = shmat(id, NULL, 0);
    CHECK(p != (void *)-1 && errno == 12345);
    for (size_t i = 0; i < 2 * page; i++)
        CHECK(p[i] == 0);
    p[page] = 7;
    GIVES(shmctl(id, IPC_STAT, &ds), 0);
    CHECK(ds.shm_atime >= time(NULL) - 60 && ds.shm_ctime >= time(NULL) - 60 && ds.shm_dtime == 0);
    const char *read_only = shmat(id, NULL, SHM_RDONLY);
    CHECK(read_only != (void *)-1 && read_only != p && read_only[page] == 7);
    /* Over another attachment only with SHM_REMAP, which then is gone. */
    FAILS(shmat(id, p, 0), EINVAL);
    int other = shmget(IPC_PRIVATE, 2 * page, 0600);
    CHECK(OURS(other));
    char *q = shmat(other, NULL, 0);
    CHECK(q != (void *)-1);
    CHECK(shmat(id, q + 5, SHM_REMAP | SHM_RND) == q && q[page] == 7);
    CHECK(shmctl(other, IPC_STAT, &ds) == 0 && ds.shm_nattch == 0);
    /* A chosen free address. */
    CHECK(munmap(mmap(q + 64 * page, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), page) ==
          0);

    GIVES(shmctl(id, IPC_STAT, &ds), 0);
    CHECK(ds.shm_segsz == page + 1 && ds.shm_nattch == 3 && ds.shm_perm.__key == KEY);
    CHECK(ds.shm_perm.uid == geteuid() && ds.shm_perm.cgid == getegid());
    CHECK(ds.shm_perm.mode == 0640 && ds.shm_cpid == getpid() && ds.shm_lpid == getpid());
    CHECK(ds.shm_dtime == 0); /* attaching in vain leaves no trace */
    ds.shm_perm.mode = 0600;
    GIVES(shmctl(id, IPC_SET, &ds), 0);
    CHECK(shmctl(id, IPC_STAT, &ds) == 0 && ds.shm_perm.mode == 0600);
    GIVES(shmctl(id, SHM_LOCK, NULL), 0);
    CHECK(shmctl(id, IPC_STAT, &ds) == 0 && (ds.shm_perm.mode & SHM_LOCKED));
    GIVES(shmctl(id, SHM_UNLOCK, NULL), 0);

    int highest = shmctl(0, IPC_INFO, (struct shmid_ds *)&limits);
    CHECK(highest >= 1 && limits.shmmin == 1 && limits.shmmni > 0 && limits.shmmax > page);
    CHECK(shmctl(0, SHM_INFO, (struct shmid_ds *)&used) == highest);
    CHECK(used.used_ids == 2 && used.shm_tot == 4);
    int found = 0;
    for (int i = 0; i <= highest; i++)
        found += shmctl(i, SHM_STAT, &ds) == id;
    CHECK(found == 1 && shmctl(highest, SHM_STAT_ANY, &ds) >= 0);
    FAILS(shmctl(id, 77, &ds), EINVAL);
    FAILS(shmctl(-1, IPC_STAT, &ds), EINVAL);
    FAILS(shmctl(id, IPC_STAT, (struct shmid_ds *)8), EFAULT);
    FAILS(shmctl(id, IPC_SET, NULL), EFAULT);

    GIVES(shmctl(id, IPC_RMID, NULL), 0);
    FAILS(shmget(KEY, 1, 0), ENOENT);
    CHECK(shmctl(id, IPC_STAT, &ds) == 0 && (ds.shm_perm.mode & SHM_DEST));
    char *late = shmat(id, NULL, 0);
    CHECK(late != (void *)-1 && late[page] == 7);
    GIVES(shmdt(late), 0);
    FAILS(shmdt(late), EINVAL);
    FAILS(shmdt(p + page), EINVAL);
    GIVES(shmdt(p), 0);
    GIVES(shmdt(read_only), 0);
    CHECK(shmctl(id, IPC_STAT, &ds) == 0 && ds.shm_nattch == 1);
    GIVES(shmdt(q), 0);
    FAILS(shmctl(id, IPC_STAT, &ds), EINVAL);
    GIVES(shmctl(other, IPC_RMID, NULL), 0);
}

/* SHM_REMAP over the middle of an attachment: two pieces are left, which count and go together. */
static void pieces(void) {
    struct shmid_ds ds;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    int large = shmget(IPC_PRIVATE, 3 * page, 0600), small = shmget(IPC_PRIVATE, page, 0600);
    CHECK(OURS(large) && OURS(small));
    char *p = shmat(large, NULL, 0);
    CHECK(p != (void *)-1);
    p[0] = 1;
    p[2 * page] = 3;
    CHECK(shmat(small, p + page, SHM_REMAP) == p + page);
    CHECK(shmctl(large, IPC_STAT, &ds) == 0 && ds.shm_nattch == 2 && ds.shm_dtime != 0);
    CHECK(p[0] == 1 && p[page] == 0 && p[2 * page] == 3);
    GIVES(shmdt(p + page), 0);
    /* What is mapped in the gap is not ours to unmap. */
    char *gap = mmap(p + page, page, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    CHECK(gap == p + page);
    GIVES(shmdt(p), 0);
    gap[0] = 2;
    CHECK(shmctl(large, IPC_STAT, &ds) == 0 && ds.shm_nattch == 0);
    FAILS(shmdt(p), EINVAL);
    CHECK(munmap(gap, page) == 0);
    GIVES(shmctl(large, IPC_RMID, NULL), 0);
    GIVES(shmctl(small, IPC_RMID, NULL), 0);
}

static void semaphores(void) {
    struct semid_ds ds;
    struct seminfo info;
    unsigned short values[3] = {3, 2, 1};
    struct timespec soon = {0, 20 * 1000 * 1000}, wrong = {0, 1000000000};

    FAILS(semget(KEY, 3, 0600), ENOENT);
    FAILS(semget(KEY, 0, IPC_CREAT | 0600), EINVAL);
    FAILS(semget(KEY, -1, IPC_CREAT | 0600), EINVAL);
    int id = semget(KEY, 3, IPC_CREAT | 0600);
    CHECK(OURS(id));
    GIVES(semget(KEY, 0, 0), id);
    FAILS(semget(KEY, 4, 0), EINVAL);

    GIVES(semctl(id, 0, SETALL, values), 0);
    memset(values, 0, sizeof values);
    GIVES(semctl(id, 0, GETALL, values), 0);
    CHECK(values[0] == 3 && values[1] == 2 && values[2] == 1);
    GIVES(semctl(id, 2, SETVAL, 5), 0);
    GIVES(semctl(id, 2, GETVAL, 0), 5);
    FAILS(semctl(id, 3, GETVAL, 0), EINVAL);
    FAILS(semctl(id, 0, SETVAL, 32768), ERANGE);
    FAILS(semctl(id, 0, SETALL, (unsigned short *)16), EFAULT);
    FAILS(semctl(id, 0, GETALL, (unsigned short *)16), EFAULT);

    GIVES(semop(id, OP(2, -5, 0), 1), 0);
    GIVES(semctl(id, 2, GETVAL, 0), 0);
    GIVES(semctl(id, 2, GETPID, 0), getpid());
    GIVES(semop(id, OP(2, 0, 0), 1), 0);
    FAILS(semop(id, OP(2, -1, IPC_NOWAIT), 1), EAGAIN);
    FAILS(semop(id, OP(3, 1, 0), 1), EFBIG);
    FAILS(semop(id, OP(0, 32767, 0), 1), ERANGE);
    FAILS(semop(id, OP(0, 1, 0), 0), EINVAL);
    FAILS(semop(id, OP(0, 1, 0), 100000), E2BIG);
    FAILS(semop(id, (struct sembuf *)24, 1), EFAULT);
    FAILS(semop(id, (struct sembuf *)24, 2), EFAULT);
    FAILS(semop(-1, OP(0, 1, 0), 1), EINVAL);
    FAILS(semtimedop(id, OP(2, -1, 0), 1, &soon), EAGAIN);
    FAILS(semtimedop(id, OP(2, -1, 0), 1, &wrong), EINVAL);
    FAILS(semtimedop(id, OP(2, -1, 0), 1, (struct timespec *)32), EFAULT);
    GIVES(semtimedop(id, OP(2, 1, 0), 1, &soon), 0);
    GIVES(semtimedop(id, OP(2, -1, 0), 1, NULL), 0);
    /* All or nothing. */
    struct sembuf both[2] = {{0, -3, IPC_NOWAIT}, {1, -3, IPC_NOWAIT}};
    FAILS(semop(id, both, 2), EAGAIN);
    GIVES(semctl(id, 0, GETVAL, 0), 3);
    both[1].sem_op = -2;
    GIVES(semop(id, both, 2), 0);
    GIVES(semctl(id, 0, GETNCNT, 0), 0);
    GIVES(semctl(id, 0, GETZCNT, 0), 0);

    GIVES(semctl(id, 0, IPC_STAT, &ds), 0);
    CHECK(ds.sem_nsems == 3 && ds.sem_perm.mode == 0600 && ds.sem_perm.__key == KEY);
    CHECK(ds.sem_otime >= time(NULL) - 60 && ds.sem_ctime >= time(NULL) - 60);
    ds.sem_perm.mode = 0644;
    GIVES(semctl(id, 0, IPC_SET, &ds), 0);
    CHECK(semctl(id, 0, IPC_STAT, &ds) == 0 && ds.sem_perm.mode == 0644);
    int highest = semctl(0, 0, IPC_INFO, &info);
    CHECK(highest >= 0 && info.semvmx == 32767 && info.semopm > 0 && info.semmsl > 0);
    CHECK(semctl(0, 0, SEM_INFO, &info) == highest && info.semusz == 1 && info.semaem == 3);
    CHECK(semctl(highest, 0, SEM_STAT, &ds) == id && semctl(highest, 0, SEM_STAT_ANY, &ds) == id);
    FAILS(semctl(id, 0, 77, 0), EINVAL);

    GIVES(semctl(id, 0, IPC_RMID, 0), 0);
    FAILS(semctl(id, 0, GETVAL, 0), EINVAL);
    FAILS(semop(id, OP(0, 1, 0), 1), EINVAL);
}

static void queues(void) {
    struct msqid_ds ds;
    struct msginfo info;
    struct message m = {5, "five"};

    FAILS(msgget(KEY, 0600), ENOENT);
    int id = msgget(KEY, IPC_CREAT | 0600);
    CHECK(OURS(id));
    GIVES(msgget(KEY, 0), id);
    FAILS(msgget(KEY, IPC_CREAT | IPC_EXCL), EEXIST);

    GIVES(msgsnd(id, &m, 5, 0), 0);
    m.type = 2;
    strcpy(m.text, "two!");
    GIVES(msgsnd(id, &m, 5, IPC_NOWAIT), 0);
    m.type = 0;
    FAILS(msgsnd(id, &m, 5, 0), EINVAL);
    m.type = 1;
    FAILS(msgsnd(id, &m, 1 << 30, 0), EINVAL);
    FAILS(msgsnd(id, &m, (size_t)-1, 0), EINVAL);
    FAILS(msgsnd(id, (void *)40, 5, 0), EFAULT);
    FAILS(msgsnd(-1, &m, 5, 0), EINVAL);

    GIVES(msgctl(id, IPC_STAT, &ds), 0);
    CHECK(ds.msg_qnum == 2 && ds.__msg_cbytes == 10 && ds.msg_lspid == getpid());
    CHECK(ds.msg_lrpid == 0 && ds.msg_perm.__key == KEY && ds.msg_rtime == 0);
    CHECK(ds.msg_stime >= time(NULL) - 60 && ds.msg_ctime >= time(NULL) - 60);

    FAILS(msgrcv(id, &m, 3, 0, 0), E2BIG);
    FAILS(msgrcv(id, &m, 64, 9, IPC_NOWAIT), ENOMSG);
    FAILS(msgrcv(id, &m, (size_t)-1, 0, 0), EINVAL);
    GIVES(msgrcv(id, &m, 64, -3, 0), 5);
    CHECK(m.type == 2 && strcmp(m.text, "two!") == 0);
    GIVES(msgrcv(id, &m, 3, 0, MSG_NOERROR), 3);
    CHECK(m.type == 5 && memcmp(m.text, "fiv", 3) == 0);
    CHECK(msgctl(id, IPC_STAT, &ds) == 0 && ds.msg_qnum == 0 && ds.msg_lrpid == getpid());

    ds.msg_qbytes = 100;
    GIVES(msgctl(id, IPC_SET, &ds), 0);
    CHECK(msgsnd(id, &m, 64, 0) == 0);
    FAILS(msgsnd(id, &m, 64, IPC_NOWAIT), EAGAIN);
    int highest = msgctl(0, IPC_INFO, (struct msqid_ds *)&info);
    CHECK(highest >= 0 && info.msgmax > 0 && info.msgmnb > 0 && info.msgmni > 0);
    CHECK(msgctl(0, MSG_INFO, (struct msqid_ds *)&info) == highest);
    CHECK(info.msgpool == 1 && info.msgmap == 1 && info.msgtql == 64);
    CHECK(msgctl(highest, MSG_STAT, &ds) == id && msgctl(highest, MSG_STAT_ANY, &ds) == id);

    GIVES(msgctl(id, IPC_RMID, NULL), 0);
    FAILS(msgctl(id, IPC_STAT, &ds), EINVAL);
    FAILS(msgsnd(id, &m, 5, 0), EINVAL);
}

int main(void) {
    segments();
    pieces();
    semaphores();
    queues();
    return 0;
}
