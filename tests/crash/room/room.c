/*
 * A file system that is full: calls fail with ENOMEM or ENOSPC (or EAGAIN, for a queue that can't
 * grow and may wait), nothing that was there is lost, no access raises SIGBUS, and when there is
 * room again everything goes on.
 *
 *   room FILE    fills the file system on which the pool is by writing to FILE
 */
#include "../../conformance/tests.h"
#include <fcntl.h>
#include <libgen.h>
#include <sys/statvfs.h>

enum { SMALL = 5000, LARGE = 1 << 20, MOST = 300, SEMAPHORES = 300 };

struct message {
    long type;
    char text[4000];
};

static const char *filler;

/* Takes what is left. */
static void fill(void) {
    static char block[4096];
    int file = (int)OK(open(filler, O_CREAT | O_WRONLY | O_TRUNC, 0600));
    while (write(file, block, sizeof block) > 0)
        ;
    EQUAL(errno, ENOSPC);
    OK(close(file));
}

static void empty(void) { OK(unlink(filler)); }

static int is_refusal(int error) { return error == ENOMEM || error == ENOSPC; }

/* Each byte of it can be written to, and reads so. */
static void use_segment(int id, size_t size, int mark) {
    char *start = shmat(id, NULL, 0);
    OK((long)start);
    memset(start, mark, size);
    for (size_t i = 0; i < size; i += 512)
        EQUAL(start[i], mark);
    OK(shmdt(start));
}

static int in_all(void) {
    struct shm_info segments;
    struct seminfo sets;
    struct msginfo queues;
    OK(shmctl(0, SHM_INFO, (struct shmid_ds *)&segments));
    OK(semctl(0, 0, SEM_INFO, (union semun){.info = &sets}));
    OK(msgctl(0, MSG_INFO, (struct msqid_ds *)&queues));
    return segments.used_ids + sets.semusz + queues.msgpool;
}

/* Makes as many as there can be; a refused call leaves nothing half made. */
static int make_segments(int *ids, size_t size) {
    int count = 0, before = in_all();
    while (count < MOST && (ids[count] = shmget(IPC_PRIVATE, size, 0600)) != -1)
        count++;
    CHECK(count == MOST || is_refusal(errno));
    EQUAL(in_all(), before + count);
    return count;
}

static void remove_segments(const int *ids, int count) {
    for (int i = 0; i < count; i++)
        OK(shmctl(ids[i], IPC_RMID, NULL));
}

static unsigned long room(void) {
    char path[200];
    struct statvfs there;
    snprintf(path, sizeof path, "%s", filler);
    OK(statvfs(dirname(path), &there));
    return there.f_bavail * there.f_bsize;
}

/* What is made when memory is scarce has it, however others fill the file system afterwards. */
static void admitted_is_backed(size_t size, int plenty) {
    static int ids[MOST];
    int count = make_segments(ids, size);
    CHECK(count > plenty);
    fill();
    for (int i = plenty; i < count; i++)
        use_segment(ids[i], size, i % 100);
    empty();
    for (int i = 0; i < count; i++)
        use_segment(ids[i], size, i % 100);
    remove_segments(ids, count);
}

/* All that processes can do, while nothing is to be had; what there was goes on. */
static void full(void) {
    static int ids[MOST];
    struct message message = {1, {0}};
    int set = (int)OK(semget(IPC_PRIVATE, 2, 0600)), queue = (int)OK(msgget(IPC_PRIVATE, 0600));
    int segment = (int)OK(shmget(IPC_PRIVATE, SMALL, 0600)), count, sent = 0;
    struct sembuf up = {0, 1, SEM_UNDO}, down = {0, -1, SEM_UNDO};
    OK(semop(set, &up, 1));
    OK(msgsnd(queue, &message, 10, 0));
    fill();
    OK(semop(set, &down, 1));
    OK(semop(set, &up, 1));
    use_segment(segment, SMALL, 'x');
    while (msgsnd(queue, &message, sizeof message.text, IPC_NOWAIT) == 0)
        sent++;
    CHECK(is_refusal(errno) || errno == EAGAIN);
    count = make_segments(ids, LARGE);
    EQUAL(count, 0);
    count = make_segments(ids, SMALL);
    for (int i = 0; i < count; i++)
        use_segment(ids[i], SMALL, i % 100);
    remove_segments(ids, count);
    for (count = 0; count < MOST && (ids[count] = semget(IPC_PRIVATE, SEMAPHORES, 0600)) != -1;)
        count++;
    CHECK(count < MOST && is_refusal(errno));
    while (count-- > 0)
        OK(semctl(ids[count], 0, IPC_RMID));
    for (count = 0; count < MOST && (ids[count] = msgget(IPC_PRIVATE, 0600)) != -1; count++)
        if (msgsnd(ids[count], &message, sizeof message.text, IPC_NOWAIT) == -1)
            CHECK(is_refusal(errno) || errno == EAGAIN);
    while (count-- > 0)
        OK(msgctl(ids[count], IPC_RMID, NULL));
    /* A process can come, and go with its adjustment. */
    pid_t pid = (pid_t)OK(fork());
    if (pid == 0) {
        OK(semop(set, &up, 1));
        EQUAL(OK(semctl(set, 0, GETVAL)), 2);
        _exit(0);
    }
    joined(pid, 0);
    EQUAL(OK(semctl(set, 0, GETVAL)), 1);
    empty();
    EQUAL(OK(msgrcv(queue, &message, sizeof message.text, 0, 0)), 10);
    while (sent-- > 0)
        EQUAL(OK(msgrcv(queue, &message, sizeof message.text, 0, 0)), sizeof message.text);
    for (int i = 0; i < 3; i++)
        OK(msgsnd(queue, &message, sizeof message.text, 0));
    OK(msgctl(queue, IPC_RMID, NULL));
    OK(semctl(set, 0, IPC_RMID));
    OK(shmctl(segment, IPC_RMID, NULL));
}

static void small_segments(void) { admitted_is_backed(200 << 10, 0); }

/* Half of the room is plenty. */
static void large_segments(void) { admitted_is_backed(LARGE, (int)(room() / 2 / LARGE)); }

/* The pool itself is full, the file system is not. */
static void pool(void) {
    static int ids[MOST];
    int first = make_segments(ids, LARGE);
    remove_segments(ids, first);
    for (int i = 0; i < 20; i++) {
        EQUAL(make_segments(ids, LARGE), first);
        remove_segments(ids, first);
    }
    EQUAL(in_all(), 0);
}

int main(int argc, char **argv) {
    static const struct test tests[] = {
        {"room/a_full_file_system_refuses", full},
        {"room/small_segments_have_memory", small_segments},
        {"room/large_segments_have_memory", large_segments},
        {"room/as_many_as_before", pool},
    };
    if (argc != 2)
        return 2;
    filler = argv[1];
    return run_tests(tests, sizeof tests / sizeof *tests, NULL);
}
