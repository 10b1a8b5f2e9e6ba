/* Semaphores under a storm: SEM_UNDO gives back, a mutex excludes, a list is done whole or not at
 * all. */
#include "storm.h"

enum { SEMAPHORES = 4, INITIAL = 2 };

static int set;

static void new_set(int count, int value) {
    set = (int)OK(semget(IPC_PRIVATE, count, 0600));
    for (int i = 0; i < count; i++)
        OK(semctl(set, i, SETVAL, (union semun){.val = value}));
}

static void remove_set(void) { OK(semctl(set, 0, IPC_RMID)); }

static void nobody_waits(int count) {
    for (int i = 0; i < count; i++) {
        EQUAL(OK(semctl(set, i, GETNCNT)), 0);
        EQUAL(OK(semctl(set, i, GETZCNT)), 0);
    }
}

/* Performs a list however often it is interrupted; 0, or the errno that ended it. */
static int perform(struct sembuf *list, size_t count) {
    while (semop(set, list, count) == -1)
        if (errno != EINTR)
            return errno;
    return 0;
}

/* Work of random length inside of a critical section. */
static void dawdle(struct life *life) {
    if (below(life, 40) == 0)
        usleep(below(life, 300));
    for (volatile unsigned i = below(life, 300); i > 0; i--)
        ;
}

/* ---- undo: take one or two, give them back, all with SEM_UNDO ---- */

static void undo_begin(void) { new_set(SEMAPHORES, INITIAL); }

static void undo_work(struct life *life) {
    for (;;) {
        unsigned short one = (unsigned short)below(life, SEMAPHORES);
        unsigned short two = (unsigned short)((one + 1 + below(life, SEMAPHORES - 1)) % SEMAPHORES);
        size_t count = 1 + below(life, 2);
        short amount = (short)(1 + below(life, INITIAL));
        struct sembuf take[2] = {{one, (short)-amount, SEM_UNDO}, {two, -1, SEM_UNDO}};
        struct sembuf give[2] = {{one, amount, SEM_UNDO}, {two, 1, SEM_UNDO}};
        EQUAL(perform(take, count), 0);
        dawdle(life);
        EQUAL(perform(give, count), 0);
        note_progress();
        if (below(life, 3000) == 0)
            return; /* some leave properly */
    }
}

static void undo_check(void) {
    for (int i = 0; i < SEMAPHORES; i++)
        EQUAL(OK(semctl(set, i, GETVAL)), INITIAL);
    nobody_waits(SEMAPHORES);
}

const struct scenario undo_scenario = {"undo",     undo_begin, undo_work, undo_check,
                                       remove_set, 0,          NULL};

/* ---- mutex: whoever is in must be the only one alive who is in ---- */

static _Atomic unsigned *owner;

static void mutex_begin(void) {
    new_set(1, 1);
    owner = shared_memory(sizeof *owner);
}

static void mutex_work(struct life *life) {
    struct sembuf take = {0, -1, SEM_UNDO}, give = {0, 1, SEM_UNDO};
    for (;;) {
        EQUAL(perform(&take, 1), 0);
        unsigned other = atomic_exchange(owner, life->number);
        if (other != 0 && !atomic_load(&board->condemned[other]))
            check_failed(__FILE__, __LINE__, "life %u and life %u are both in", other,
                         life->number);
        dawdle(life);
        EQUAL(atomic_load(owner), life->number);
        atomic_store(owner, 0);
        EQUAL(perform(&give, 1), 0);
        note_progress();
    }
}

static void mutex_check(void) {
    EQUAL(OK(semctl(set, 0, GETVAL)), 1);
    nobody_waits(1);
}

const struct scenario mutex_scenario = {"mutex",    mutex_begin, mutex_work, mutex_check,
                                        remove_set, 0,           NULL};

/* ---- whole: without SEM_UNDO, both semaphores of a pair move together, whoever dies when ---- */

static void whole_begin(void) { new_set(3, 0); }

static void whole_work(struct life *life) {
    struct sembuf raise[2] = {{0, 1, 0}, {1, 1, 0}};
    struct sembuf lower[2] = {{0, -1, IPC_NOWAIT}, {1, -1, IPC_NOWAIT}};
    /* Blocks while there is nothing, takes both, and gives both back at once. */
    struct sembuf swap[4] = {{0, -1, 0}, {1, -1, 0}, {0, 1, 0}, {1, 1, 0}};
    /* Can never go on: semaphore 2 stays at zero. Nothing of it may be seen. */
    struct sembuf never[2] = {{0, 1, 0}, {2, -1, IPC_NOWAIT}};
    for (;;) {
        switch (below(life, 4)) {
        case 0:
        case 1: {
            int error = perform(raise, 2);
            CHECK(error == 0 || error == ERANGE);
            break;
        }
        case 2: {
            int error = perform(lower, 2);
            CHECK(error == 0 || error == EAGAIN);
            break;
        }
        default:
            if (life->slot == 0) {
                int error = perform(never, 2);
                CHECK(error == EAGAIN || error == ERANGE);
            } else {
                /* Someone always raises, so this ends. */
                EQUAL(perform(swap, 4), 0);
            }
        }
        note_progress();
    }
}

static void whole_check(void) {
    EQUAL(OK(semctl(set, 0, GETVAL)), OK(semctl(set, 1, GETVAL)));
    EQUAL(OK(semctl(set, 2, GETVAL)), 0);
    nobody_waits(3);
}

const struct scenario whole_scenario = {"whole",    whole_begin, whole_work, whole_check,
                                        remove_set, 0,           NULL};
