/* Many processes at once: nothing is lost, doubled, or out of order. */
#include "tests.h"
#include <sched.h>
#include <stddef.h>

static unsigned random_state = 1;

static unsigned random_number(void) {
    random_state = random_state * 1103515245U + 12345U;
    return random_state >> 8;
}

static int change(int id, int number, int by, int flags) {
    struct sembuf operation = {(unsigned short)number, (short)by, (short)flags};
    return semop(id, &operation, 1);
}

enum { COUNTERS = 6, ADDITIONS = 4000 };

struct counting {
    int set;
    int flags;
    volatile long *counter;
};

static void counts(void *argument) {
    struct counting *work = argument;
    for (int i = 0; i < ADDITIONS; i++) {
        OK(change(work->set, 0, -1, work->flags));
        long value = *work->counter;
        if (i % 64 == 0)
            sched_yield();
        *work->counter = value + 1;
        OK(change(work->set, 0, 1, work->flags));
    }
}

static void mutual_exclusion(int flags) {
    int segment = (int)OK(shmget(IPC_PRIVATE, 4096, 0600));
    volatile long *counter = shmat(segment, NULL, 0);
    OK((long)counter);
    OK(shmctl(segment, IPC_RMID, NULL));
    struct counting work = {(int)OK(semget(IPC_PRIVATE, 1, 0600)), flags, counter};
    OK(change(work.set, 0, 1, 0));
    pid_t pids[COUNTERS];
    for (int i = 0; i < COUNTERS; i++)
        pids[i] = child(counts, &work);
    for (int i = 0; i < COUNTERS; i++)
        joined(pids[i], 0);
    EQUAL(*counter, (long)COUNTERS * ADDITIONS);
    EQUAL(OK(semctl(work.set, 0, GETVAL)), 1);
    OK(semctl(work.set, 0, IPC_RMID));
}

static void a_semaphore_excludes(void) { mutual_exclusion(0); }

static void a_semaphore_with_undo_excludes(void) { mutual_exclusion(SEM_UNDO); }

enum { PHILOSOPHERS = 5, MEALS = 1500 };

static int forks_set;

/* Both forks or none: no deadlock without any further care. */
static void dines(void *argument) {
    unsigned short left = (unsigned short)*(int *)argument, right = (left + 1) % PHILOSOPHERS;
    struct sembuf take[2] = {{left, -1, SEM_UNDO}, {right, -1, SEM_UNDO}};
    struct sembuf give[2] = {{left, 1, SEM_UNDO}, {right, 1, SEM_UNDO}};
    for (int i = 0; i < MEALS; i++) {
        OK(semop(forks_set, take, 2));
        OK(semop(forks_set, give, 2));
    }
}

static void philosophers_all_dine(void) {
    pid_t pids[PHILOSOPHERS];
    forks_set = (int)OK(semget(IPC_PRIVATE, PHILOSOPHERS, 0600));
    for (int i = 0; i < PHILOSOPHERS; i++)
        OK(change(forks_set, i, 1, 0));
    for (int i = 0; i < PHILOSOPHERS; i++)
        pids[i] = child(dines, &i);
    for (int i = 0; i < PHILOSOPHERS; i++)
        joined(pids[i], 0);
    for (int i = 0; i < PHILOSOPHERS; i++)
        EQUAL(OK(semctl(forks_set, i, GETVAL)), 1);
    OK(semctl(forks_set, 0, IPC_RMID));
}

enum { SENDERS = 4, MESSAGES = 3000, LARGEST = 3000, TYPES = 4 };

/* The text of a message: who sent it, which one it is, how long it is, and bytes that follow from
 * those. */
struct letter {
    long type;
    struct {
        int sender, number, size;
        unsigned char bytes[LARGEST];
    } text;
};

static int queue;

static unsigned char letter_byte(const struct letter *letter, int position) {
    return (unsigned char)(letter->text.sender * 31 + letter->text.number * 7 + position);
}

static void writes_letters(void *argument) {
    struct letter letter;
    letter.text.sender = *(int *)argument;
    random_state = 77U + (unsigned)letter.text.sender;
    for (int i = 0; i < MESSAGES; i++) {
        letter.type = 1 + (long)(random_number() % TYPES);
        letter.text.number = i;
        letter.text.size = (int)(random_number() % (random_number() % 8 ? 100 : LARGEST));
        for (int j = 0; j < letter.text.size; j++)
            letter.text.bytes[j] = letter_byte(&letter, j);
        size_t header = offsetof(struct letter, text.bytes) - offsetof(struct letter, text);
        OK(msgsnd(queue, &letter, header + (size_t)letter.text.size, 0));
    }
}

static void check_letter(const struct letter *letter, ssize_t bytes) {
    size_t header = offsetof(struct letter, text.bytes) - offsetof(struct letter, text);
    EQUAL(bytes, header + (size_t)letter->text.size);
    CHECK(letter->text.sender >= 0 && letter->text.sender < SENDERS);
    for (int j = 0; j < letter->text.size; j++)
        EQUAL(letter->text.bytes[j], letter_byte(letter, j));
}

/* Reads everything of one type; the messages of a sender must come in order. */
static void reads_letters_of_type(void *argument) {
    long type = *(int *)argument;
    int last[SENDERS] = {-1, -1, -1, -1}, ended = 0;
    struct letter letter;
    while (ended == 0) {
        ssize_t bytes = OK(msgrcv(queue, &letter, sizeof letter.text, type, 0));
        EQUAL(letter.type, type);
        if (bytes == 0) {
            ended = 1;
            continue;
        }
        check_letter(&letter, bytes);
        CHECK(letter.text.number > last[letter.text.sender]);
        last[letter.text.sender] = letter.text.number;
    }
}

static void messages_of_many_arrive_in_order(void) {
    pid_t senders[SENDERS], receivers[TYPES];
    queue = (int)OK(msgget(IPC_PRIVATE, 0600));
    for (int i = 0; i < TYPES; i++) {
        int type = i + 1;
        receivers[i] = child(reads_letters_of_type, &type);
    }
    for (int i = 0; i < SENDERS; i++)
        senders[i] = child(writes_letters, &i);
    for (int i = 0; i < SENDERS; i++)
        joined(senders[i], 0);
    for (int i = 0; i < TYPES; i++) {
        struct letter end = {.type = i + 1};
        OK(msgsnd(queue, &end, 0, 0));
    }
    for (int i = 0; i < TYPES; i++)
        joined(receivers[i], 0);
    struct msqid_ds ds;
    OK(msgctl(queue, IPC_STAT, &ds));
    EQUAL(ds.msg_qnum, 0);
    EQUAL(ds.__msg_cbytes, 0);
    OK(msgctl(queue, IPC_RMID, NULL));
}

/* Several receivers share the work; a segment counts what each message number was received. */
static unsigned char (*seen)[MESSAGES];

static void reads_any_letter(void *unused) {
    (void)unused;
    struct letter letter;
    for (;;) {
        ssize_t bytes = OK(msgrcv(queue, &letter, sizeof letter.text, 0, 0));
        if (bytes == 0)
            return;
        check_letter(&letter, bytes);
        __atomic_add_fetch(&seen[letter.text.sender][letter.text.number], 1, __ATOMIC_RELAXED);
    }
}

static void no_message_is_lost_or_doubled(void) {
    enum { RECEIVERS = 3 };
    pid_t senders[SENDERS], receivers[RECEIVERS];
    queue = (int)OK(msgget(IPC_PRIVATE, 0600));
    int segment = (int)OK(shmget(IPC_PRIVATE, sizeof(*seen) * SENDERS, 0600));
    seen = shmat(segment, NULL, 0);
    OK((long)seen);
    OK(shmctl(segment, IPC_RMID, NULL));
    for (int i = 0; i < RECEIVERS; i++)
        receivers[i] = child(reads_any_letter, NULL);
    for (int i = 0; i < SENDERS; i++)
        senders[i] = child(writes_letters, &i);
    for (int i = 0; i < SENDERS; i++)
        joined(senders[i], 0);
    struct letter end = {.type = TYPES + 1};
    for (int i = 0; i < RECEIVERS; i++)
        OK(msgsnd(queue, &end, 0, 0));
    for (int i = 0; i < RECEIVERS; i++)
        joined(receivers[i], 0);
    for (int i = 0; i < SENDERS; i++)
        for (int j = 0; j < MESSAGES; j++)
            EQUAL(seen[i][j], 1);
    OK(msgctl(queue, IPC_RMID, NULL));
}

enum { SLOTS = 16, ITEMS = 20000, FILLED = 0, FREE = 1 };

struct belt {
    int set;
    volatile unsigned *slots;
};

static void produces(void *argument) {
    struct belt *belt = argument;
    for (unsigned i = 0; i < ITEMS; i++) {
        OK(change(belt->set, FREE, -1, 0));
        belt->slots[i % SLOTS] = i * 2654435761U;
        OK(change(belt->set, FILLED, 1, 0));
    }
}

static void a_belt_between_two_processes(void) {
    int segment = (int)OK(shmget(IPC_PRIVATE, 4096, 0600));
    struct belt belt = {(int)OK(semget(IPC_PRIVATE, 2, 0600)), shmat(segment, NULL, 0)};
    OK((long)belt.slots);
    OK(shmctl(segment, IPC_RMID, NULL));
    OK(change(belt.set, FREE, SLOTS, 0));
    pid_t pid = child(produces, &belt);
    for (unsigned i = 0; i < ITEMS; i++) {
        OK(change(belt.set, FILLED, -1, 0));
        EQUAL(belt.slots[i % SLOTS], i * 2654435761U);
        OK(change(belt.set, FREE, 1, 0));
    }
    joined(pid, 0);
    OK(semctl(belt.set, 0, IPC_RMID));
}

/* Everyone makes, finds, uses and removes IPC objects of the same few keys at the same time. */
static void fights_over_keys(void *argument) {
    random_state = 5U + (unsigned)*(int *)argument;
    for (int i = 0; i < 3000; i++) {
        key_t key = (key_t)(0x9900 + random_number() % 3);
        int id = semget(key, 2, IPC_CREAT | 0600);
        if (id == -1)
            check_failed(__FILE__, __LINE__, "semget: %s", strerrorname_np(errno));
        if (change(id, 0, 1, 0) == -1)
            CHECK(errno == EINVAL || errno == EIDRM || errno == ERANGE);
        int segment = shmget(key, 4096 * (1 + random_number() % 4), IPC_CREAT | 0600);
        if (segment == -1) {
            CHECK(errno == EINVAL); /* another size was faster */
        } else {
            char *start = shmat(segment, NULL, 0);
            if (start == (void *)-1) {
                CHECK(errno == EINVAL || errno == EIDRM);
            } else {
                start[random_number() % 4096] = 1;
                OK(shmdt(start));
            }
        }
        if (random_number() % 3 == 0 && semctl(id, 0, IPC_RMID) == -1)
            CHECK(errno == EINVAL || errno == EIDRM);
        if (random_number() % 3 == 0 && segment != -1 && shmctl(segment, IPC_RMID, NULL) == -1)
            CHECK(errno == EINVAL || errno == EIDRM);
    }
}

static void keys_can_be_fought_over(void) {
    enum { FIGHTERS = 4 };
    pid_t pids[FIGHTERS];
    for (int i = 0; i < FIGHTERS; i++)
        pids[i] = child(fights_over_keys, &i);
    for (int i = 0; i < FIGHTERS; i++)
        joined(pids[i], 0);
    for (key_t key = 0x9900; key < 0x9903; key++) {
        int id = semget(key, 0, 0), segment = shmget(key, 0, 0);
        if (id != -1)
            OK(semctl(id, 0, IPC_RMID));
        if (segment != -1)
            OK(shmctl(segment, IPC_RMID, NULL));
    }
    struct shm_info used;
    OK(shmctl(0, SHM_INFO, (struct shmid_ds *)&used));
    EQUAL(used.used_ids, 0);
    EQUAL(used.shm_tot, 0);
}

TESTS({"stress/a_semaphore_excludes", a_semaphore_excludes},
      {"stress/a_semaphore_with_undo_excludes", a_semaphore_with_undo_excludes},
      {"stress/philosophers_all_dine", philosophers_all_dine},
      {"stress/messages_of_many_arrive_in_order", messages_of_many_arrive_in_order},
      {"stress/no_message_is_lost_or_doubled", no_message_is_lost_or_doubled},
      {"stress/a_belt_between_two_processes", a_belt_between_two_processes},
      {"stress/keys_can_be_fought_over", keys_can_be_fought_over})
