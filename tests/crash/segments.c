/* Segments and directories under a storm: counts come out right, and nothing is left behind. */
#include "storm.h"

enum { SEGMENTS = 5 };

static int segments[SEGMENTS];

/* ---- segments: attach, use, fork, detach ---- */

static void segment_begin(void) {
    for (int i = 0; i < SEGMENTS; i++)
        segments[i] = (int)OK(shmget(IPC_PRIVATE, 4096U << i, 0600));
}

/* A child that uses what it inherited and goes, sometimes without a word. */
static void let_a_child_use(char *start) {
    pid_t pid = (pid_t)OK(fork());
    if (pid == 0) {
        start[1] = 1;
        _exit(0);
    }
    while (waitpid(pid, NULL, 0) == -1)
        EQUAL(errno, EINTR);
}

static void segment_work(struct life *life) {
    for (;;) {
        unsigned first = below(life, SEGMENTS), second = below(life, SEGMENTS);
        char *one = shmat(segments[first], NULL, 0), *two = shmat(segments[second], NULL, 0);
        OK((long)one);
        OK((long)two);
        one[below(life, 4096)] = 1;
        two[below(life, 4096)] = 2;
        if (below(life, 30) == 0)
            let_a_child_use(one);
        OK(shmdt(two));
        OK(shmdt(one));
        note_progress();
        if (below(life, 500) == 0) {
            OK((long)shmat(segments[first], NULL, 0));
            return; /* leaves properly, but attached */
        }
    }
}

static void segment_check(void) {
    struct shmid_ds ds;
    for (int i = 0; i < SEGMENTS; i++) {
        /* A grandchild may have outlived its parent by a moment. */
        double began = seconds_now();
        do
            OK(shmctl(segments[i], IPC_STAT, &ds));
        while (ds.shm_nattch != 0 && seconds_now() - began < 1);
        EQUAL(ds.shm_nattch, 0);
    }
}

static void segment_end(void) {
    for (int i = 0; i < SEGMENTS; i++)
        OK(shmctl(segments[i], IPC_RMID, NULL));
}

const struct scenario segment_scenario = {
    "segments", segment_begin, segment_work, segment_check, segment_end, 0, NULL};

/* ---- churn: everyone makes and removes IPC objects of a few keys ---- */

enum { KEYS = 4, FIRST_KEY = 0x43000 };

static void churn_begin(void) {}

/* An IPC object may go away under one's hands; that must be all that goes wrong. */
#define or_it_went_away(call) went_away((long)(call), __LINE__, #call)

static void went_away(long result, int line, const char *call) {
    static const int expected[] = {EINVAL, EIDRM, EINTR, EAGAIN, ENOMSG, ERANGE, ENOENT};
    int found = errno;
    if (result != -1)
        return;
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        if (found == expected[i])
            return;
    check_failed(__FILE__, line, "%s failed with %s", call, strerrorname_np(found));
}

static void churn_queue(struct life *life, key_t key) {
    struct {
        long type;
        char text[2000];
    } message = {1, {0}};
    int id = (int)OK(msgget(key, IPC_CREAT | 0600));
    for (unsigned i = below(life, 6); i > 0; i--)
        or_it_went_away(msgsnd(id, &message, below(life, sizeof message.text), IPC_NOWAIT));
    or_it_went_away(msgrcv(id, &message, sizeof message.text, 0, IPC_NOWAIT));
    if (below(life, 2))
        or_it_went_away(msgctl(id, IPC_RMID, NULL));
}

static void churn_set(struct life *life, key_t key) {
    int id = (int)OK(semget(key, 3, IPC_CREAT | 0600));
    for (unsigned i = below(life, 6); i > 0; i--) {
        struct sembuf operation = {(unsigned short)below(life, 3), (short)((int)below(life, 5) - 2),
                                   (short)(IPC_NOWAIT | (below(life, 2) ? SEM_UNDO : 0))};
        or_it_went_away(semop(id, &operation, 1));
    }
    if (below(life, 2))
        or_it_went_away(semctl(id, 0, IPC_RMID));
}

static void churn_segment(struct life *life, key_t key) {
    int id = shmget(key, 4096 * (1 + below(life, 8)), IPC_CREAT | 0600);
    if (id == -1) {
        EQUAL(errno, EINVAL); /* there is one that is smaller */
        return;
    }
    char *start = shmat(id, NULL, 0);
    if (start == (void *)-1)
        CHECK(errno == EINVAL || errno == EIDRM);
    if (start != (void *)-1) {
        start[below(life, 4096)] = 1;
        if (below(life, 2))
            OK(shmdt(start));
    }
    if (below(life, 2))
        or_it_went_away(shmctl(id, IPC_RMID, NULL));
}

static void churn_work(struct life *life) {
    for (;;) {
        key_t key = (key_t)(FIRST_KEY + below(life, KEYS));
        switch (below(life, 3)) {
        case 0:
            churn_queue(life, key);
            break;
        case 1:
            churn_set(life, key);
            break;
        default:
            churn_segment(life, key);
        }
        note_progress();
        if (below(life, 500) == 0)
            return;
    }
}

/* Everything that can still be found is removed; then there must be nothing. */
static void churn_check(void) {
    for (key_t key = FIRST_KEY; key < FIRST_KEY + KEYS; key++) {
        int queue = msgget(key, 0), set = semget(key, 0, 0), segment = shmget(key, 0, 0);
        if (queue != -1)
            OK(msgctl(queue, IPC_RMID, NULL));
        if (set != -1)
            OK(semctl(set, 0, IPC_RMID));
        if (segment != -1)
            OK(shmctl(segment, IPC_RMID, NULL));
    }
    struct shm_info used;
    int highest;
    /* The memory of a dead process may be let go of a moment after its parent was told. */
    double began = seconds_now();
    do
        highest = (int)OK(shmctl(0, SHM_INFO, (struct shmid_ds *)&used));
    while (used.used_ids > 0 && seconds_now() - began < 1);
    for (int i = 0; used.used_ids > 0 && i <= highest; i++) {
        struct shmid_ds ds;
        if (shmctl(i, SHM_STAT_ANY, &ds) != -1)
            check_failed(
                __FILE__, __LINE__,
                "of %d segments left: mode %o, %lu attachments, made by %d, last used by %d",
                used.used_ids, (unsigned)ds.shm_perm.mode, (unsigned long)ds.shm_nattch,
                (int)ds.shm_cpid, (int)ds.shm_lpid);
    }
    EQUAL(used.used_ids, 0);
}

static void churn_end(void) {}

const struct scenario churn_scenario = {"churn",   churn_begin, churn_work, churn_check,
                                        churn_end, 0,           NULL};
