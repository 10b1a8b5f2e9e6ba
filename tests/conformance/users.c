/* Processes of two users: who may do what with an IPC object of the other's. Needs root to become
 * them. */
#include "tests.h"
#include <grp.h>

enum { ALICE = 20001, BOB = 20002, GROUP = 20100 };

static void become(uid_t user, gid_t group) {
    OK(setgroups(0, NULL));
    OK(setegid(group));
    OK(seteuid(user));
}

static void need_root(void) {
    if (geteuid() != 0)
        skip("only root can become someone else");
    /* A pool is its owner's: it must be open before the process becomes someone who may not open
     * it. */
    struct seminfo info;
    OK(semctl(0, 0, IPC_INFO, (union semun){.info = &info}));
}

static void alter(int id, int by, int wanted) {
    struct sembuf operation = {0, (short)by, IPC_NOWAIT};
    if (wanted == 0)
        OK(semop(id, &operation, 1));
    else
        FAILS(semop(id, &operation, 1), wanted);
}

static void bob_uses_private_set(void *id) {
    become(BOB, BOB);
    struct semid_ds ds;
    alter(*(int *)id, 1, EACCES);
    alter(*(int *)id, 0, EACCES);
    FAILS(semctl(*(int *)id, 0, GETVAL), EACCES);
    FAILS(semctl(*(int *)id, 0, SETVAL, (union semun){.val = 1}), EACCES);
    FAILS(semctl(*(int *)id, 0, IPC_STAT, (union semun){.buf = &ds}), EACCES);
    FAILS(semctl(*(int *)id, 0, IPC_RMID), EPERM);
}

static void bob_reads_only(void *id) {
    become(BOB, BOB);
    alter(*(int *)id, 0, 0);
    alter(*(int *)id, 1, EACCES);
    EQUAL(OK(semctl(*(int *)id, 0, GETVAL)), 0);
    FAILS(semctl(*(int *)id, 0, SETVAL, (union semun){.val = 1}), EACCES);
}

static void owner_and_creator(void *id) {
    become(BOB, BOB);
    alter(*(int *)id, 1, 0);
    struct semid_ds ds;
    OK(semctl(*(int *)id, 0, IPC_STAT, (union semun){.buf = &ds}));
    EQUAL(ds.sem_perm.uid, BOB);
    EQUAL(ds.sem_perm.cuid, ALICE);
    ds.sem_perm.mode = 0400;
    OK(semctl(*(int *)id, 0, IPC_SET, (union semun){.buf = &ds}));
    alter(*(int *)id, 1, EACCES);
}

static void semaphores_of_another_user(void) {
    need_root();
    become(ALICE, ALICE);
    int id = (int)OK(semget(IPC_PRIVATE, 1, 0600));
    OK(seteuid(0));
    joined(child(bob_uses_private_set, &id), 0);
    struct semid_ds ds = {.sem_perm = {.uid = ALICE, .gid = ALICE, .mode = 0604}};
    OK(semctl(id, 0, IPC_SET, (union semun){.buf = &ds}));
    joined(child(bob_reads_only, &id), 0);
    ds.sem_perm.uid = BOB;
    ds.sem_perm.mode = 0600;
    OK(semctl(id, 0, IPC_SET, (union semun){.buf = &ds}));
    joined(child(owner_and_creator, &id), 0);
    OK(seteuid(ALICE));
    OK(semctl(id, 0, IPC_RMID)); /* the creator may, too */
}

static void member_attaches(void *id) {
    gid_t group = GROUP;
    OK(setgroups(1, &group));
    OK(setegid(BOB));
    OK(seteuid(BOB));
    char *start = shmat(*(int *)id, NULL, SHM_RDONLY);
    OK((long)start);
    CHECK(start[0] == 'a');
    FAILS((long)shmat(*(int *)id, NULL, 0), EACCES);
}

static void stranger_attaches(void *id) {
    become(BOB, BOB);
    struct shmid_ds ds;
    FAILS((long)shmat(*(int *)id, NULL, SHM_RDONLY), EACCES);
    FAILS(shmctl(*(int *)id, IPC_STAT, &ds), EACCES);
    FAILS(shmctl(*(int *)id, IPC_RMID, NULL), EPERM);
    FAILS(shmctl(*(int *)id, SHM_LOCK, NULL), EPERM);
}

static void segments_of_another_user(void) {
    need_root();
    OK(setegid(GROUP));
    OK(seteuid(ALICE));
    int id = (int)OK(shmget(IPC_PRIVATE, 4096, 0640));
    char *start = shmat(id, NULL, 0);
    OK((long)start);
    start[0] = 'a';
    OK(seteuid(0));
    OK(setegid(0));
    joined(child(member_attaches, &id), 0);
    joined(child(stranger_attaches, &id), 0);
    OK(shmctl(id, IPC_RMID, NULL));
}

static void writer_of_a_letter_box(void *id) {
    struct {
        long type;
        char text[4];
    } message = {1, "hi"};
    become(BOB, BOB);
    OK(msgsnd(*(int *)id, &message, 3, 0));
    FAILS(msgrcv(*(int *)id, &message, 3, 0, IPC_NOWAIT), EACCES);
    struct msqid_ds ds;
    FAILS(msgctl(*(int *)id, IPC_STAT, &ds), EACCES);
}

static void queues_of_another_user(void) {
    need_root();
    become(ALICE, ALICE);
    int id = (int)OK(msgget(IPC_PRIVATE, 0602));
    OK(seteuid(0));
    joined(child(writer_of_a_letter_box, &id), 0);
    OK(seteuid(ALICE));
    struct {
        long type;
        char text[4];
    } message;
    EQUAL(OK(msgrcv(id, &message, 4, 0, 0)), 3);
    struct msqid_ds ds;
    OK(msgctl(id, IPC_STAT, &ds));
    ds.msg_qbytes *= 2;
    FAILS(msgctl(id, IPC_SET, &ds), EPERM);
    OK(msgctl(id, IPC_RMID, NULL));
}

static void finds_by_key(void *unused) {
    (void)unused;
    become(BOB, BOB);
    FAILS(semget(0x77, 1, 0600), EACCES);
    FAILS(semget(0x77, 1, IPC_CREAT | 0666), EACCES);
    FAILS(semget(0x77, 1, IPC_CREAT | IPC_EXCL | 0666), EEXIST);
    OK(semget(0x77, 1, 0));
    OK(semget(0x77, 1, 0004));
}

static void keys_of_another_user(void) {
    need_root();
    become(ALICE, ALICE);
    int id = (int)OK(semget(0x77, 1, IPC_CREAT | IPC_EXCL | 0604));
    OK(seteuid(0));
    joined(child(finds_by_key, NULL), 0);
    OK(semctl(id, 0, IPC_RMID));
}

/* Root changed into an ordinary user for good while it holds what it attached and locked. */
static void what_is_attached_stays(void) {
    need_root();
    int id = (int)OK(shmget(IPC_PRIVATE, 4096, 0600));
    char *start = shmat(id, NULL, 0);
    OK((long)start);
    OK(setuid(BOB));
    start[0] = 1;
    FAILS((long)shmat(id, NULL, 0), EACCES);
    FAILS(shmctl(id, IPC_RMID, NULL), EPERM);
    OK(shmdt(start));
}

TESTS({"users/semaphores_of_another_user", semaphores_of_another_user},
      {"users/segments_of_another_user", segments_of_another_user},
      {"users/queues_of_another_user", queues_of_another_user},
      {"users/keys_of_another_user", keys_of_another_user},
      {"users/what_is_attached_stays", what_is_attached_stays})
