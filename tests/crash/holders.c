/*
 * Who lives and holds something while others die: semaphores have the values that the survivors'
 * adjustments imply, and segments are attached as often as survivors have them.
 */
#include "storm.h"

enum {
    SURVIVORS = 3,
    /* Semaphores of which much is held for long, and such that are held for moments. */
    LONG = 3,
    SHORT = 2,
    PLENTY = 1000,
    FEW = 2,
    MOST_HELD = 20,
    SEGMENTS = 3,
    MOST_ATTACHED = 4,
    /* Bytes of a segment that belong to one slot. */
    EACH = 64
};

/* What a slot's worker holds, told by itself. */
struct holdings {
    int held[LONG];
    int attached[SEGMENTS];
};

static int set, segments[SEGMENTS];
static struct holdings *holdings;

static void begin(void) {
    set = (int)OK(semget(IPC_PRIVATE, LONG + SHORT, 0600));
    for (int i = 0; i < LONG + SHORT; i++)
        OK(semctl(set, i, SETVAL, (union semun){.val = i < LONG ? PLENTY : FEW}));
    for (int i = 0; i < SEGMENTS; i++)
        segments[i] = (int)OK(shmget(IPC_PRIVATE, 4096U << (2 * i), 0600));
    holdings = shared_memory(sizeof *holdings * WORKERS);
}

static void perform(struct sembuf *list, size_t count) {
    while (semop(set, list, count) == -1)
        EQUAL(errno, EINTR);
}

/* Takes or gives for long: to have given more than one took is a holding, too. */
static void hold(struct life *life, struct holdings *mine) {
    unsigned which = below(life, LONG);
    int amount = (int)below(life, 7) - 3;
    if (amount == 0 || abs(mine->held[which] + amount) > MOST_HELD)
        return;
    struct sembuf take = {(unsigned short)which, (short)-amount, SEM_UNDO};
    perform(&take, 1);
    mine->held[which] += amount;
}

/* Waits for what is short, takes of both kinds at once, and gives back what is short. */
static void pass_through(struct life *life, struct holdings *mine) {
    unsigned which = below(life, LONG), few = LONG + below(life, SHORT);
    if (mine->held[which] == MOST_HELD)
        return;
    struct sembuf take[2] = {{(unsigned short)few, -1, SEM_UNDO},
                             {(unsigned short)which, -1, SEM_UNDO}};
    struct sembuf give = {(unsigned short)few, 1, SEM_UNDO};
    perform(take, 2);
    mine->held[which]++;
    for (volatile unsigned i = below(life, 300); i > 0; i--)
        ;
    perform(&give, 1);
}

/* Attaches, and leaves a word behind that must still be there when it looks again. */
static void attach(struct life *life, struct holdings *mine) {
    static unsigned *attached[SEGMENTS][MOST_ATTACHED];
    static unsigned written[SEGMENTS];
    unsigned which = below(life, SEGMENTS);
    int *count = &mine->attached[which];
    size_t word = (size_t)life->slot * EACH / sizeof(unsigned);
    if (*count < MOST_ATTACHED && below(life, 2)) {
        unsigned *start = shmat(segments[which], NULL, 0);
        OK((long)start);
        attached[which][(*count)++] = start;
        if (written[which] != 0)
            EQUAL(start[word], written[which]);
        start[word] = written[which] = life->random;
    } else if (*count > 0) {
        unsigned *start = attached[which][--*count];
        EQUAL(start[word], written[which]);
        OK(shmdt(start));
    }
}

static void work(struct life *life) {
    struct holdings *mine = &holdings[life->slot];
    memset(mine, 0, sizeof *mine);
    for (;;) {
        switch (below(life, 3)) {
        case 0:
            hold(life, mine);
            break;
        case 1:
            pass_through(life, mine);
            break;
        default:
            attach(life, mine);
        }
        note_progress();
        rest(life);
        if (life->slot >= SURVIVORS && below(life, 3000) == 0)
            return; /* some leave properly, with all that they hold */
    }
}

static void count_attachments(int segment, unsigned long wanted) {
    struct shmid_ds ds;
    /* The memory of a dead process may be let go of a moment after its parent was told. */
    double began = seconds_now();
    do
        OK(shmctl(segment, IPC_STAT, &ds));
    while (ds.shm_nattch != wanted && seconds_now() - began < 1);
    EQUAL(ds.shm_nattch, wanted);
}

static void check(void) {
    int living = atomic_load(&board->pause) ? SURVIVORS : 0;
    for (int i = 0; i < LONG; i++) {
        int value = PLENTY;
        for (int slot = 0; slot < living; slot++)
            value -= holdings[slot].held[i];
        EQUAL(OK(semctl(set, i, GETVAL)), value);
    }
    for (int i = LONG; i < LONG + SHORT; i++)
        EQUAL(OK(semctl(set, i, GETVAL)), FEW);
    for (int i = 0; i < LONG + SHORT; i++) {
        EQUAL(OK(semctl(set, i, GETNCNT)), 0);
        EQUAL(OK(semctl(set, i, GETZCNT)), 0);
    }
    for (int i = 0; i < SEGMENTS; i++) {
        unsigned long attached = 0;
        for (int slot = 0; slot < living; slot++)
            attached += (unsigned long)holdings[slot].attached[i];
        count_attachments(segments[i], attached);
    }
}

static void end(void) {
    OK(semctl(set, 0, IPC_RMID));
    for (int i = 0; i < SEGMENTS; i++)
        OK(shmctl(segments[i], IPC_RMID, NULL));
}

const struct scenario holders_scenario = {"holders", begin, work, check, end, SURVIVORS, NULL};
