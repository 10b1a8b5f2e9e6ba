/*
 * A queue under a storm. Each message is whole; none comes twice; one sender's messages come in
 * order. A message whose msgsnd has returned is received; of a sender that was killed one more may
 * have gone out. One is missing only if a receiver was killed with it in hand: msgrcv takes a
 * message out before its caller has it, in the kernel, too.
 */
#include "storm.h"

enum { SENDERS = WORKERS / 2, PER_LIFE = 1500, LARGEST = 1200, LIVES = MOST_LIVES };

struct letter {
    long type;
    struct {
        unsigned life, number, size;
        unsigned char bytes[LARGEST];
    } text;
};
enum { HEADER = 3 * sizeof(unsigned) };

/* What is known of the messages of each sender's life. */
struct record {
    /* So many calls of msgsnd have returned. */
    _Atomic unsigned sent;
    _Atomic unsigned char received[PER_LIFE];
};

static int queue;
static struct record *records;

static unsigned char letter_byte(const struct letter *letter, unsigned position) {
    return (unsigned char)(letter->text.life * 31 + letter->text.number * 7 + position);
}

static void begin(void) {
    queue = (int)OK(msgget(IPC_PRIVATE, 0600));
    records = shared_memory(sizeof *records * LIVES);
}

static void send(struct life *life) {
    struct letter letter;
    for (unsigned number = 0; number < PER_LIFE; number++) {
        letter.type = 1 + (long)below(life, 3);
        letter.text.life = life->number;
        letter.text.number = number;
        letter.text.size = below(life, below(life, 6) ? 60 : LARGEST);
        for (unsigned i = 0; i < letter.text.size; i++)
            letter.text.bytes[i] = letter_byte(&letter, i);
        while (msgsnd(queue, &letter, HEADER + letter.text.size, 0) == -1)
            EQUAL(errno, EINTR);
        atomic_store(&records[life->number].sent, number + 1);
        note_progress();
    }
}

static void take_note(const struct letter *letter, ssize_t bytes) {
    CHECK(bytes >= HEADER);
    EQUAL(bytes, HEADER + letter->text.size);
    CHECK(letter->type >= 1 && letter->type <= 3);
    CHECK(letter->text.life < LIVES && letter->text.number < PER_LIFE);
    for (unsigned i = 0; i < letter->text.size; i++)
        EQUAL(letter->text.bytes[i], letter_byte(letter, i));
    EQUAL(atomic_fetch_add(&records[letter->text.life].received[letter->text.number], 1), 0);
}

/* What to ask for: mostly the first, sometimes a type, or the lowest. */
static long wish(struct life *life) {
    switch (below(life, 8)) {
    case 0:
        return 1 + (long)below(life, 3);
    case 1:
        return -(1 + (long)below(life, 3));
    default:
        return 0;
    }
}

/* What one receiver gets of a sender comes in order: of each type, and of all who asks for any. */
static void in_order(const struct letter *letter, int asks_for_any) {
    static unsigned next[LIVES][4];
    unsigned *of = next[letter->text.life], number = letter->text.number;
    CHECK(number >= of[letter->type]);
    of[letter->type] = number + 1;
    if (asks_for_any) {
        CHECK(number >= of[0]);
        of[0] = number + 1;
    }
}

static void receive(struct life *life) {
    struct letter letter;
    int asks_for_any = life->slot == WORKERS - 1;
    for (;;) {
        /* Waiting for one type only could be in vain. */
        long type = asks_for_any ? 0 : wish(life);
        ssize_t bytes = msgrcv(queue, &letter, sizeof letter.text, type, type ? IPC_NOWAIT : 0);
        if (bytes == -1) {
            if (errno != EINTR && (errno != ENOMSG || type == 0))
                check_failed(__FILE__, __LINE__, "msgrcv of type %ld failed with %s", type,
                             strerrorname_np(errno));
            continue;
        }
        take_note(&letter, bytes);
        in_order(&letter, asks_for_any);
        note_progress();
    }
}

static void work(struct life *life) {
    CHECK(life->number < LIVES);
    if (life->slot < SENDERS)
        send(life);
    else
        receive(life);
}

/* Empties the queue and counts what is missing. */
static void check(void) {
    struct letter letter;
    for (;;) {
        ssize_t bytes = msgrcv(queue, &letter, sizeof letter.text, 0, IPC_NOWAIT);
        if (bytes == -1)
            break;
        take_note(&letter, bytes);
    }
    EQUAL(errno, ENOMSG);
    struct msqid_ds ds;
    OK(msgctl(queue, IPC_STAT, &ds));
    EQUAL(ds.msg_qnum, 0);
    EQUAL(ds.__msg_cbytes, 0);
    unsigned long missing = 0, killed_receivers = 0;
    for (unsigned life = 0; life < LIVES; life++) {
        unsigned sent = atomic_load(&records[life].sent);
        for (unsigned i = 0; i < sent; i++)
            missing += records[life].received[i] == 0;
        /* One more may have gone out before its sender was killed; the next can't have been. */
        for (unsigned i = sent + 1; sent > 0 && i < PER_LIFE && i < sent + 5; i++)
            EQUAL(records[life].received[i], 0);
    }
    for (int slot = SENDERS; slot < WORKERS; slot++)
        killed_receivers += atomic_load(&board->kills[slot]);
    if (missing > killed_receivers)
        check_failed(__FILE__, __LINE__,
                     "%lu messages are missing, but only %lu receivers were killed", missing,
                     killed_receivers);
}

static void end(void) { OK(msgctl(queue, IPC_RMID, NULL)); }

const struct scenario queue_scenario = {"queue", begin, work, check, end, 0, NULL};

/* ---- letters: only senders die; two receivers live, so nothing at all may be missing ---- */

enum { RECEIVERS = 2, ROUSE = 4 };

static void letters_rouse(void) {
    struct letter letter = {ROUSE, {0}};
    for (int i = 0; i < RECEIVERS; i++)
        OK(msgsnd(queue, &letter, HEADER, 0));
}

/* One takes what has waited longest, the other the lowest type: what rouses them comes last to
 * both. */
static void receive_all(const struct life *life) {
    long type = life->slot == 0 ? 0 : -ROUSE;
    struct letter letter;
    for (;;) {
        ssize_t bytes = msgrcv(queue, &letter, sizeof letter.text, type, 0);
        if (bytes == -1) {
            EQUAL(errno, EINTR);
        } else if (letter.type == ROUSE) {
            rest(life);
        } else {
            take_note(&letter, bytes);
            in_order(&letter, type == 0);
            note_progress();
        }
    }
}

static void letters_work(struct life *life) {
    if (life->slot < RECEIVERS)
        receive_all(life);
    else
        send(life);
}

static void letters_check(void) {
    struct msqid_ds ds;
    OK(msgctl(queue, IPC_STAT, &ds));
    EQUAL(ds.msg_qnum, 0);
    EQUAL(ds.__msg_cbytes, 0);
    for (unsigned life = 0; life < LIVES; life++) {
        unsigned sent = atomic_load(&records[life].sent);
        for (unsigned i = 0; i < sent; i++)
            if (records[life].received[i] != 1)
                check_failed(__FILE__, __LINE__, "message %u of life %u, of %u sent, is missing", i,
                             life, sent);
        for (unsigned i = sent + 1; sent > 0 && i < PER_LIFE && i < sent + 5; i++)
            EQUAL(records[life].received[i], 0);
    }
}

const struct scenario letters_scenario = {"letters", begin,     letters_work, letters_check,
                                          end,       RECEIVERS, letters_rouse};
