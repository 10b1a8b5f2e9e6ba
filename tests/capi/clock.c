/* Waits and times are by the kernel's clock, whatever another library tells the program
 * (opened/clock.c). */
#include "capi.h"

static long real_ms(clockid_t clock) {
    struct timespec now;
    CHECK(syscall(SYS_clock_gettime, clock, &now) == 0);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int main(void) {
    struct timespec timeout = {0, 200000000}, told[2];
    CHECK(clock_gettime(CLOCK_MONOTONIC, &told[0]) == 0);
    alarm(30);
    int set = semget(IPC_PRIVATE, 1, 0600), queue = msgget(IPC_PRIVATE, 0600);
    CHECK(set != -1 && queue != -1);
    long begun = real_ms(CLOCK_MONOTONIC);
    FAILS(semtimedop(set, OP(0, -1, 0), 1, &timeout), EAGAIN);
    long took = real_ms(CLOCK_MONOTONIC) - begun;
    CHECK(took >= 200 && took < 5000);
    CHECK(clock_gettime(CLOCK_MONOTONIC, &told[1]) == 0 &&
          memcmp(&told[0], &told[1], sizeof told[0]) == 0); /* it stands still */

    struct message message = {1, ""};
    struct semid_ds of_set;
    struct msqid_ds of_queue;
    GIVES(semop(set, OP(0, 1, 0), 1), 0);
    GIVES(msgsnd(queue, &message, 8, 0), 0);
    CHECK(semctl(set, 0, IPC_STAT, &of_set) == 0 && msgctl(queue, IPC_STAT, &of_queue) == 0);
    long now = real_ms(CLOCK_REALTIME) / 1000;
    CHECK(now - of_set.sem_otime < 10 && now - of_queue.msg_stime < 10);
    CHECK(now - of_set.sem_ctime < 40 && now - of_queue.msg_ctime < 40);
    CHECK(semctl(set, 0, IPC_RMID) == 0 && msgctl(queue, IPC_RMID, NULL) == 0);
    return 0;
}
