/* What a storm may not leave behind, as far as a program can see it. */
#include "storm.h"

/* How much there is room for, up to a bound: segments, then the same with queues full of messages.
 */
int capacity(void) {
    enum { MOST = 3000 };
    static int segments[MOST], queues[MOST];
    struct {
        long type;
        char text[4000];
    } message = {1, {0}};
    int count = 0, full = 0;
    while (count < MOST && (segments[count] = shmget(IPC_PRIVATE, 65536, 0600)) != -1)
        count++;
    for (int i = 0; i < count; i++)
        OK(shmctl(segments[i], IPC_RMID, NULL));
    while (full < MOST && (queues[full] = msgget(IPC_PRIVATE, 0600)) != -1) {
        int sent = 0;
        while (sent < 4 && msgsnd(queues[full], &message, sizeof message.text, IPC_NOWAIT) == 0)
            sent++;
        full++;
        if (sent < 4)
            break;
    }
    for (int i = 0; i < full; i++)
        OK(msgctl(queues[i], IPC_RMID, NULL));
    return count + full;
}

struct usage {
    struct shm_info segments;
    struct seminfo sets;
    struct msginfo queues;
};

static int usage(struct usage *now) {
    OK(shmctl(0, SHM_INFO, (struct shmid_ds *)&now->segments));
    OK(semctl(0, 0, SEM_INFO, (union semun){.info = &now->sets}));
    OK(msgctl(0, MSG_INFO, (struct msqid_ds *)&now->queues));
    return now->segments.used_ids + now->sets.semusz + now->queues.msgpool;
}

void nothing_is_left(void) {
    struct usage now;
    /* What a dead process had begun to remove is removed when it is known to be dead, which may be
     * a moment after its parent was told. */
    double began = seconds_now();
    while (usage(&now) > 0 && seconds_now() - began < 1)
        ;
    EQUAL(now.segments.used_ids, 0);
    EQUAL(now.segments.shm_tot, 0);
    EQUAL(now.sets.semusz, 0);
    EQUAL(now.sets.semaem, 0);
    EQUAL(now.queues.msgpool, 0);
    EQUAL(now.queues.msgmap, 0);
    EQUAL(now.queues.msgtql, 0);
}
