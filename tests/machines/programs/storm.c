/*
 * What processes in machines and on the host do while machines are killed, and the accounts of it.
 * They lie in a segment of the pool, so that whoever lives can look: what each life holds, and how
 * far its messages have come.
 *
 *   storm begin                 makes the IPC objects
 *   storm work LIFE             takes, gives, attaches, sends, until it is killed or all is over
 *   storm receive               takes all messages out
 *   storm look LIFE...          only these live: their calls end, all is as their accounts imply
 *   storm end                   all is over: removes the IPC objects
 */
#include "../../conformance/tests.h"
#include <stdatomic.h>

enum {
    BOARD = 0x570a0,
    SET,
    QUEUE,
    SEGMENT,
    LIVES = 8192,
    /* Semaphores of which much is held for long, and such that are held for moments. */
    LONG = 3,
    SHORT = 2,
    PLENTY = 1000,
    FEW = 2,
    MOST_HELD = 20,
    MOST_ATTACHED = 4,
    LARGEST = 600,
    WORK = 1,
    OVER = 2,
    /* Seconds in which each call ends, and what the dead held is free, times VSHMEM_TEST_SLOW. More
       than the 20 after which a lock's owner is not believed. */
    PATIENCE = 60
};

struct life {
    /* So many calls of msgsnd have returned, and so many messages have come. */
    _Atomic unsigned sent, received;
    _Atomic unsigned steps, seen, resting;
    _Atomic int held[LONG], attached;
};

struct board {
    _Atomic int pause, over, lives;
    _Atomic unsigned refused;
    struct life life[LIVES];
};

struct letter {
    long type;
    struct {
        unsigned life, number, size;
        unsigned char bytes[LARGEST];
    } text;
};
enum { HEADER = 3 * sizeof(unsigned) };

static struct board *board;
static int set, queue, segment;
static unsigned dice;

static int patience(void) {
    const char *slow = getenv("VSHMEM_TEST_SLOW");
    return PATIENCE * (slow ? atoi(slow) : 1);
}

static unsigned below(unsigned limit) {
    dice ^= dice << 13;
    dice ^= dice >> 17;
    dice ^= dice << 5;
    return dice % limit;
}

static void open_all(int flags) {
    int id = (int)OK(shmget(BOARD, sizeof *board, 0600 | flags));
    board = shmat(id, NULL, 0);
    OK((long)board);
    set = (int)OK(semget(SET, LONG + SHORT, 0600 | flags));
    queue = (int)OK(msgget(QUEUE, 0600 | flags));
    segment = (int)OK(shmget(SEGMENT, 100000, 0600 | flags));
}

static void begin(void) {
    open_all(IPC_CREAT | IPC_EXCL);
    for (int i = 0; i < LONG + SHORT; i++)
        OK(semctl(set, i, SETVAL, (union semun){.val = i < LONG ? PLENTY : FEW}));
}

/* A call that failed is made again. EIDRM says, of an IPC object that is there, that a lock's owner
 * does not move: its machine is paused. */
static int again(void) {
    if (errno == EINTR)
        return 1;
    if (errno != EIDRM)
        return 0;
    atomic_fetch_add(&board->refused, 1);
    return 1;
}

static void perform(struct sembuf *list, size_t count) {
    while (semop(set, list, count) == -1)
        if (!again())
            check_failed(__FILE__, __LINE__, "semop failed with %s", strerrorname_np(errno));
}

static void hold(struct life *mine) {
    unsigned which = below(LONG);
    int amount = (int)below(7) - 3;
    if (amount == 0 || abs(mine->held[which] + amount) > MOST_HELD)
        return;
    struct sembuf take = {(unsigned short)which, (short)-amount, SEM_UNDO};
    perform(&take, 1);
    mine->held[which] += amount;
}

static void pass_through(struct life *mine) {
    unsigned which = below(LONG), few = LONG + below(SHORT);
    if (mine->held[which] == MOST_HELD)
        return;
    struct sembuf take[2] = {{(unsigned short)few, -1, SEM_UNDO},
                             {(unsigned short)which, -1, SEM_UNDO}};
    struct sembuf give = {(unsigned short)few, 1, SEM_UNDO};
    perform(take, 2);
    mine->held[which]++;
    perform(&give, 1);
}

static void attach(struct life *mine) {
    static char *start[MOST_ATTACHED];
    if (mine->attached < MOST_ATTACHED && below(2)) {
        while ((start[mine->attached] = shmat(segment, NULL, 0)) == (void *)-1)
            if (!again())
                check_failed(__FILE__, __LINE__, "shmat failed with %s", strerrorname_np(errno));
        start[mine->attached][below(100000)] = 1;
        mine->attached++;
    } else if (mine->attached > 0) {
        while (shmdt(start[mine->attached - 1]) == -1)
            if (!again())
                check_failed(__FILE__, __LINE__, "shmdt failed with %s", strerrorname_np(errno));
        mine->attached--;
    }
}

static unsigned char letter_byte(const struct letter *letter, unsigned position) {
    return (unsigned char)(letter->text.life * 31 + letter->text.number * 7 + position);
}

static void post(struct life *mine, unsigned life) {
    struct letter letter = {WORK, {life, mine->sent, below(LARGEST), {0}}};
    for (unsigned i = 0; i < letter.text.size; i++)
        letter.text.bytes[i] = letter_byte(&letter, i);
    while (msgsnd(queue, &letter, HEADER + letter.text.size, 0) == -1)
        if (!again())
            check_failed(__FILE__, __LINE__, "msgsnd failed with %s", strerrorname_np(errno));
    mine->sent++;
}

static void rest(struct life *mine) {
    mine->resting = 1;
    while (board->pause)
        nap_ms(2);
    mine->resting = 0;
}

static void work(unsigned life) {
    open_all(0);
    CHECK(life < LIVES);
    struct life *mine = &board->life[life];
    dice = life * 2654435761U | 1;
    if ((int)life >= board->lives)
        board->lives = (int)life + 1;
    while (!board->over) {
        switch (below(4)) {
        case 0:
            hold(mine);
            break;
        case 1:
            pass_through(mine);
            break;
        case 2:
            attach(mine);
            break;
        default:
            post(mine, life);
        }
        mine->steps++;
        if (board->pause)
            rest(mine);
    }
}

/* Whole, once, and in order. */
static void receive(void) {
    struct letter letter;
    open_all(0);
    for (;;) {
        ssize_t bytes = msgrcv(queue, &letter, sizeof letter.text, 0, 0);
        if (bytes == -1) {
            CHECK(again());
            continue;
        }
        if (letter.type == OVER)
            return;
        EQUAL(letter.type, WORK);
        EQUAL(bytes, HEADER + letter.text.size);
        CHECK(letter.text.life < LIVES);
        for (unsigned i = 0; i < letter.text.size; i++)
            EQUAL(letter.text.bytes[i], letter_byte(&letter, i));
        EQUAL(letter.text.number, board->life[letter.text.life].received);
        board->life[letter.text.life].received++;
    }
}

/* Waits for a condition, which is looked at again and again. */
#define EVENTUALLY(condition, ...)                                                                 \
    do {                                                                                           \
        double began = seconds_now();                                                              \
        while (!(condition)) {                                                                     \
            if (seconds_now() - began > patience())                                                \
                check_failed(__FILE__, __LINE__, __VA_ARGS__);                                     \
            nap_ms(5);                                                                             \
        }                                                                                          \
    } while (0)

static int value(int semaphore) { return (int)OK(semctl(set, semaphore, GETVAL)); }

static unsigned long attachments(void) {
    struct shmid_ds ds;
    OK(shmctl(segment, IPC_STAT, &ds));
    return ds.shm_nattch;
}

static unsigned long queued(void) {
    struct msqid_ds ds;
    OK(msgctl(queue, IPC_STAT, &ds));
    return ds.msg_qnum;
}

/* Of the living all has come, of the dead perhaps one more than they knew of. */
static void messages_have_come(const char *lives) {
    for (int i = 0; i < board->lives; i++) {
        struct life *life = &board->life[i];
        EVENTUALLY(life->received >= life->sent, "of the %u messages of life %d, %u have come",
                   life->sent, i, life->received);
        if (life->received > life->sent + (lives[i] ? 0 : 1))
            check_failed(__FILE__, __LINE__, "life %d has sent %u messages, and %u have come", i,
                         life->sent, life->received);
    }
}

static void look(int count, char **numbers) {
    static char lives[LIVES];
    unsigned long steps = 0, messages = 0, attached = 0;
    int held[LONG] = {0};
    open_all(0);
    for (int i = 0; i < count; i++) {
        int number = atoi(numbers[i]);
        CHECK(number >= 0 && number < LIVES);
        lives[number] = 1;
        struct life *life = &board->life[number];
        EVENTUALLY(life->steps != life->seen, "life %d has got nowhere since the last look",
                   number);
    }
    board->pause = 1;
    for (int i = 0; i < LIVES; i++) {
        struct life *life = &board->life[i];
        if (!lives[i])
            continue;
        EVENTUALLY(life->resting, "a call of life %d does not end", i);
        life->seen = life->steps;
        attached += (unsigned long)life->attached;
        for (int which = 0; which < LONG; which++)
            held[which] += life->held[which];
    }
    messages_have_come(lives);
    EVENTUALLY(queued() == 0, "%lu messages are left", queued());
    for (int i = 0; i < LONG; i++)
        EVENTUALLY(value(i) == PLENTY - held[i], "semaphore %d is %d, and the living hold %d of %d",
                   i, value(i), held[i], PLENTY);
    for (int i = LONG; i < LONG + SHORT; i++)
        EVENTUALLY(value(i) == FEW, "semaphore %d is %d, and nobody holds it", i, value(i));
    EVENTUALLY(attachments() == attached, "the living have attached it %lu times, it counts %lu",
               attached, attachments());
    for (int i = 0; i < board->lives; i++) {
        steps += board->life[i].steps;
        messages += board->life[i].received;
    }
    printf("%lu operations, %lu messages, %u calls that a pause ended\n", steps, messages,
           board->refused);
    board->pause = 0;
}

static void stop(void) {
    open_all(0);
    board->over = 1;
}

static void end(void) {
    struct letter over = {OVER, {0}};
    open_all(0);
    OK(msgsnd(queue, &over, HEADER, 0));
    EVENTUALLY(queued() == 0, "nobody receives any more");
    EVENTUALLY(attachments() == 0, "somebody has it attached still");
    int id = (int)OK(shmget(BOARD, 0, 0));
    OK(shmctl(id, IPC_RMID, NULL));
    OK(shmctl(segment, IPC_RMID, NULL));
    OK(semctl(set, 0, IPC_RMID));
    OK(msgctl(queue, IPC_RMID, NULL));
    OK(shmdt(board));
    struct shm_info used;
    EVENTUALLY(shmctl(0, SHM_INFO, (struct shmid_ds *)&used) != -1 && used.used_ids == 0,
               "%d segments are left", used.used_ids);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    if (strcmp(what, "begin") == 0)
        begin();
    else if (strcmp(what, "work") == 0 && argc == 3)
        work((unsigned)atoi(argv[2]));
    else if (strcmp(what, "receive") == 0)
        receive();
    else if (strcmp(what, "look") == 0)
        look(argc - 2, argv + 2);
    else if (strcmp(what, "stop") == 0)
        stop();
    else if (strcmp(what, "end") == 0)
        end();
    else
        return 2;
    return 0;
}
