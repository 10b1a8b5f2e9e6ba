/*
 * A signal handler that uses the same IPC objects as the code that it interrupts: nothing
 * deadlocks, no count is lost. The handler may hit the very first call, which opens the pool.
 */
#include "capi.h"

enum { KEY = 0x570, SECONDS = 2 };

static int set = -1, queue = -1, segment = -1;
static volatile long handled, posted, taken, attached;

static void on_alarm(int number) {
    (void)number;
    int saved = errno;
    handled++;
    if (set < 0) {
        /* Also a first use. */
        int id = semget(KEY, 2, IPC_CREAT | 0600);
        CHECK(id >= 0);
        errno = saved;
        return;
    }
    if (semop(set, OP(0, 1, IPC_NOWAIT), 1) == 0)
        posted++;
    struct message m = {1, "from the handler"};
    if (msgsnd(queue, &m, 40, IPC_NOWAIT) == 0)
        posted++;
    if (msgrcv(queue, &m, sizeof m.text, 0, IPC_NOWAIT) >= 0)
        taken++;
    if (handled % 16 == 0) {
        char *p = shmat(segment, NULL, 0);
        CHECK(p != (void *)-1);
        p[0]++;
        attached++;
        CHECK(shmdt(p) == 0);
        struct semid_ds ds;
        CHECK(semctl(set, 0, IPC_STAT, &ds) == 0);
    }
    errno = saved;
}

int main(void) {
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    struct itimerval every = {{0, 50}, {0, 50}};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &every, NULL) == 0);

    int id = semget(KEY, 2, IPC_CREAT | 0600);
    queue = msgget(KEY, IPC_CREAT | 0600);
    segment = shmget(KEY, 4096, IPC_CREAT | 0600);
    CHECK(id >= 0 && queue >= 0 && segment >= 0);
    set = id;

    long rounds = 0, interrupted = 0, mine = 0, got = 0;
    for (time_t end = time(NULL) + SECONDS; time(NULL) < end; rounds++) {
        int done;
        /* Up and down by one each, whatever the handler adds. */
        while ((done = semop(set, OP(0, 1, 0), 1)) == -1 && errno == EINTR)
            interrupted++;
        CHECK(done == 0 || errno == ERANGE);
        if (done == 0)
            while (semop(set, OP(0, -1, 0), 1) == -1) {
                CHECK(errno == EINTR);
                interrupted++;
            }
        /* Keeps the handler's posts from reaching the largest value. */
        if (semctl(set, 0, GETVAL, 0) > 20000 && semop(set, OP(0, -10000, IPC_NOWAIT), 1) == 0)
            mine -= 10000;
        struct message m = {2, "from main"};
        ssize_t n;
        while ((n = msgsnd(queue, &m, 10, IPC_NOWAIT)) == -1 && errno == EINTR)
            interrupted++;
        CHECK(n == 0 || errno == EAGAIN);
        got += n == 0;
        while ((n = msgrcv(queue, &m, sizeof m.text, 0, IPC_NOWAIT)) == -1 && errno == EINTR)
            interrupted++;
        CHECK(n >= 0 || errno == ENOMSG);
        got -= n >= 0;
        /* A wait that the handler interrupts, or that its time ends. */
        if (rounds % 64 == 0) {
            struct timespec t = {0, 200000};
            FAILS(semtimedop(set, OP(1, -1, 0), 1, &t), errno == EINTR ? EINTR : EAGAIN);
        }
        if (rounds % 32 == 0) {
            char *p = shmat(segment, NULL, 0);
            CHECK(p != (void *)-1 && shmdt(p) == 0);
        }
    }
    memset(&every, 0, sizeof every);
    CHECK(setitimer(ITIMER_REAL, &every, NULL) == 0);

    /* What was posted in excess of what was taken is there. */
    long value = semctl(set, 0, GETVAL, 0);
    struct msqid_ds ds;
    CHECK(msgctl(queue, IPC_STAT, &ds) == 0);
    long excess = value - mine + (long)ds.msg_qnum - got + taken;
    printf("%ld signals, %ld rounds, %ld interrupted\n", handled, rounds, interrupted);
    CHECK(handled > 500 && rounds > 500 && excess == posted);
    char *p = shmat(segment, NULL, 0);
    CHECK(p != (void *)-1 && (unsigned char)p[0] == (unsigned char)attached);
    CHECK(attachments(segment) == 1);
    return 0;
}
