/* The structures that the library fills, against the system's headers: src/abi.rs asserts the same
 * numbers. */
#include "capi.h"
#include <stddef.h>

#define SIZE(type, bytes) _Static_assert(sizeof(type) == (bytes), #type)
#define AT(type, field, bytes) _Static_assert(offsetof(type, field) == (bytes), #type "." #field)

SIZE(struct ipc_perm, 48);
AT(struct ipc_perm, uid, 4);
AT(struct ipc_perm, cgid, 16);
AT(struct ipc_perm, mode, 20);
AT(struct ipc_perm, __seq, 24);
SIZE(struct shmid_ds, 112);
AT(struct shmid_ds, shm_segsz, 48);
AT(struct shmid_ds, shm_atime, 56);
AT(struct shmid_ds, shm_dtime, 64);
AT(struct shmid_ds, shm_ctime, 72);
AT(struct shmid_ds, shm_cpid, 80);
AT(struct shmid_ds, shm_lpid, 84);
AT(struct shmid_ds, shm_nattch, 88);
AT(struct semid_ds, sem_otime, 48);
#ifdef __x86_64__
SIZE(struct semid_ds, 104);
AT(struct semid_ds, sem_ctime, 64);
AT(struct semid_ds, sem_nsems, 80);
#else
SIZE(struct semid_ds, 88);
AT(struct semid_ds, sem_ctime, 56);
AT(struct semid_ds, sem_nsems, 64);
#endif
SIZE(struct msqid_ds, 120);
AT(struct msqid_ds, msg_stime, 48);
AT(struct msqid_ds, msg_rtime, 56);
AT(struct msqid_ds, msg_ctime, 64);
AT(struct msqid_ds, __msg_cbytes, 72);
AT(struct msqid_ds, msg_qnum, 80);
AT(struct msqid_ds, msg_qbytes, 88);
AT(struct msqid_ds, msg_lspid, 96);
AT(struct msqid_ds, msg_lrpid, 100);
SIZE(struct shminfo, 72);
AT(struct shminfo, shmall, 32);
SIZE(struct shm_info, 48);
AT(struct shm_info, shm_tot, 8);
SIZE(struct seminfo, 40);
AT(struct seminfo, semvmx, 32);
SIZE(struct msginfo, 32);
AT(struct msginfo, msgseg, 28);
SIZE(struct sembuf, 6);
SIZE(struct timespec, 16);

/* Nothing is written behind a structure. */
#define FILLED(kind, call)                                                                         \
    do {                                                                                           \
        struct {                                                                                   \
            struct kind ds;                                                                        \
            unsigned char behind[32];                                                              \
        } room;                                                                                    \
        memset(&room, 0xa5, sizeof room);                                                          \
        struct kind *out = &room.ds;                                                               \
        CHECK((call) >= 0);                                                                        \
        for (size_t i = 0; i < sizeof room.behind; i++)                                            \
            CHECK(room.behind[i] == 0xa5);                                                         \
    } while (0)

int main(void) {
    int segment = shmget(IPC_PRIVATE, 1, 0600), set = semget(IPC_PRIVATE, 1, 0600),
        queue = msgget(IPC_PRIVATE, 0600);
    CHECK(segment >= 0 && set >= 0 && queue >= 0);
    FILLED(shmid_ds, shmctl(segment, IPC_STAT, out));
    FILLED(shminfo, shmctl(0, IPC_INFO, (struct shmid_ds *)out));
    FILLED(shm_info, shmctl(0, SHM_INFO, (struct shmid_ds *)out));
    FILLED(semid_ds, semctl(set, 0, IPC_STAT, out));
    FILLED(seminfo, semctl(0, 0, SEM_INFO, out));
    FILLED(msqid_ds, msgctl(queue, IPC_STAT, out));
    FILLED(msginfo, msgctl(0, MSG_INFO, (struct msqid_ds *)out));
    return 0;
}
