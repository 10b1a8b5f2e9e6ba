/*
 * Sizes that change after a process was told of them: a hostile member has rewritten them. Each
 * such call must fail, with EIDRM, and touch nothing but what the program has room for. Changes the
 * pool by its file, as docs/layout.md says.
 */
#include "pool.h"

#define fail(...) check_failed(__FILE__, __LINE__, __VA_ARGS__)

enum { SEGMENTS = 3, SETS = 4, PAGE = 4096 };

static void sets(void) {
    const int set = semget(IPC_PRIVATE, 3, 0600);
    CHECK(set >= 0);
    open_pool();
    _Atomic uint64_t *count = word(entry(SETS, 192, set) + 40);
    EQUAL(*count, 3);
    unsigned short values[8] = {9, 9, 9, 9, 9, 9, 9, 9};
    EQUAL(semctl(set, 0, GETALL, values), 0);
    EQUAL(values[2], 0);
    EQUAL(values[3], 9);

    *count = 8;
    FAILS(semctl(set, 0, GETALL, values), EIDRM);
    EQUAL(values[3], 9);
    /* Nothing of the program's that it did not mean to give away gets into the pool. */
    FAILS(semctl(set, 0, SETALL, values), EIDRM);
    EQUAL(semctl(set, 0, GETVAL), 0);

    struct semid_ds ds;
    /* Who asks for the time need not look at the size again. */
    FAILS(semctl(set, 0, IPC_STAT, &ds), EIDRM);
    FAILS(semctl(set & 0x1ffff, 0, SEM_STAT, &ds), EIDRM);
    FAILS(semctl(set, 0, GETALL, values), EIDRM);
    EQUAL(values[3], 9);
    *count = 3;
    EQUAL(semctl(set, 0, IPC_STAT, &ds), 0);
    EQUAL(semctl(set, 0, IPC_RMID), 0);

    /* Who looks an id up and finds another size than before has an id that is of no use. */
    const int named = semget(7, 3, IPC_CREAT | 0600);
    CHECK(named >= 0);
    count = word(entry(SETS, 192, named) + 40);
    *count = 8;
    EQUAL(semget(7, 0, 0), named);
    for (*count = 8; *count; *count = *count == 8 ? 3 : 0) {
        FAILS(semctl(named, 0, IPC_STAT, &ds), EIDRM);
        FAILS(semctl(named, 0, GETALL, values), EIDRM);
        EQUAL(values[3], 9);
    }
    *count = 3;
    EQUAL(semctl(named, 0, IPC_RMID), 0);
}

enum { MANY = 1024, ROOM = 2, FORGED = 65535, SECRET = 0x5ec1 };

/* How often the secret stands in the pool, as a value of 16 bits. */
static long secrets(void) {
    long found = 0;
    for (size_t i = 0; i < pool_size; i += 2)
        found += *(volatile unsigned short *)(void *)(pool + i) == SECRET;
    return found;
}

/*
 * A program that has room for two values at the very end of what it may write, with a secret behind
 * them that must stay its own, and a set of which the pool says that it has 65,535.
 */
static void beyond(int set, const char *how) {
    const size_t bytes = FORGED * sizeof(unsigned short), pages = (bytes / PAGE + 2) * PAGE;
    unsigned char *memory =
        mmap(NULL, pages, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED && mprotect(memory + pages - PAGE, PAGE, PROT_NONE) == 0);
    unsigned short *values = (void *)memory;
    for (size_t i = 0; i < FORGED; i++)
        values[i] = i < ROOM ? 7 : SECRET;
    _Atomic uint64_t *count = word(entry(SETS, 192, set) + 40);
    const uint64_t honest = *count;
    const long before = secrets();
    *count = FORGED;
    if (semctl(set, 0, GETALL, values) != -1 || errno != EIDRM)
        fail("GETALL of a forged set was not refused, %s", how);
    if (semctl(set, 0, SETALL, values) != -1 || errno != EIDRM)
        fail("SETALL of a forged set was not refused, %s", how);
    for (size_t i = ROOM; i < FORGED; i++)
        if (values[i] != SECRET)
            fail("GETALL wrote value %zu, %s", i, how);
    if (secrets() > before + ROOM)
        fail("SETALL gave a secret away, %s", how);
    *count = honest;
    munmap(memory, pages);
}

/* A process that is told of very many sets forgets none of them. */
static void many_sets(void) {
    static int sets[3 * MANY];
    for (int i = 0; i < 3 * MANY; i++)
        CHECK((sets[i] = semget(IPC_PRIVATE, ROOM, 0600)) >= 0);
    open_pool();
    const int first[] = {sets[0], sets[MANY], sets[2 * MANY]};
    CHECK((first[0] & 0x1ffff) % MANY == (first[1] & 0x1ffff) % MANY);
    for (int i = 0; i < 3; i++)
        beyond(first[i], "after a thousand others");
    for (int i = 0; i < 3 * MANY; i++)
        EQUAL(semctl(sets[i], 0, IPC_RMID), 0);
}

/* The size is forged before the program finds the set; it asks for as many as it has room for. */
static void forged_before(void) {
    const int set = semget(8, ROOM, IPC_CREAT | 0600);
    CHECK(set >= 0);
    open_pool();
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        /* A program of its own, which was told of nothing. */
        execl("/proc/self/exe", "lies", "newcomer", NULL);
        _exit(127);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    EQUAL(status, 0);
    EQUAL(semctl(set, 0, IPC_RMID), 0);
}

static void newcomer(void) {
    open_pool();
    int set = 0;
    for (; set < 0x20000 && *word(entry(SETS, 192, set) + 40) != ROOM; set++)
        ;
    _Atomic uint64_t *count = word(entry(SETS, 192, set) + 40);
    *count = FORGED;
    const int asked = semget(8, ROOM, 0);
    CHECK(asked >= 0);
    *count = ROOM;
    beyond(asked, "forged before it was found");
    *count = FORGED;
    EQUAL(semget(8, 0, 0), asked);
    *count = ROOM;
    beyond(asked, "found by its key alone");
}

static void segments(void) {
    const int id = shmget(IPC_PRIVATE, 2 * PAGE, 0600);
    CHECK(id >= 0);
    open_pool();
    const uint64_t at = entry(SEGMENTS, 128, id);
    EQUAL(*word(at + 48), 2);
    unsigned char *room =
        mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(room != MAP_FAILED);
    memset(room, 9, 4 * PAGE);

    /* Larger, smaller, and pages that don't agree with the size: what is mapped is what was told,
     * or nothing. */
    const uint64_t lies[][2] = {
        {3, 3 * PAGE}, {1, PAGE}, {3, 2 * PAGE}, {1, 2 * PAGE}, {2, 3 * PAGE}};
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        *word(at + 48) = lies[i][0];
        *word(at + 56) = lies[i][1];
        errno = 0;
        CHECK(shmat(id, room, SHM_REMAP) == (void *)-1);
        CHECK(errno == EIDRM || errno == EINVAL);
        struct shmid_ds ds;
        if (lies[i][1] != 2 * PAGE)
            FAILS(shmctl(id, IPC_STAT, &ds), EIDRM);
        for (size_t k = 0; k < 4 * PAGE; k++)
            CHECK(room[k] == 9);
    }
    *word(at + 48) = 2;
    *word(at + 56) = 2 * PAGE;
    CHECK(shmat(id, room, SHM_REMAP) == room);
    EQUAL(room[2 * PAGE - 1], 0);
    EQUAL(room[2 * PAGE], 9);
    EQUAL(shmdt(room), 0);
    EQUAL(shmctl(id, IPC_RMID, NULL), 0);
}

/* A segment of a known length at a place of the program's choice; what is forged maps over no more.
 */
static void many_segments(void) {
    enum { ROOM_PAGES = 4 };
    static int ids[MANY + 1];
    for (int i = 0; i <= MANY; i++)
        CHECK((ids[i] = shmget(IPC_PRIVATE, 1, 0600)) >= 0);
    open_pool();
    const uint64_t at = entry(SEGMENTS, 128, ids[0]);
    unsigned char *room =
        mmap(NULL, ROOM_PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(room != MAP_FAILED);
    memset(room, 9, ROOM_PAGES * PAGE);
    const uint64_t honest[] = {*word(at + 40), *word(at + 48), *word(at + 56)};
    /* Where there are as many pages. */
    *word(at + 40) = 0;
    *word(at + 48) = ROOM_PAGES;
    *word(at + 56) = ROOM_PAGES * PAGE;
    FAILS((long)shmat(ids[0], room, SHM_REMAP), EIDRM);
    FAILS((long)shmat(ids[0], NULL, 0), EIDRM);
    for (size_t i = 0; i < ROOM_PAGES * PAGE; i++)
        CHECK(room[i] == 9);
    for (int i = 0; i < 3; i++)
        *word(at + 40 + i * 8) = honest[i];
    /* Detached, it is still known. */
    for (int i = 0; i < 2; i++) {
        CHECK(shmat(ids[0], room, SHM_REMAP) == room);
        EQUAL(shmdt(room), 0);
    }
    for (int i = 0; i <= MANY; i++)
        EQUAL(shmctl(ids[i], IPC_RMID, NULL), 0);
}

/* Where the hash table of a kind has the link to the first entry of a key. */
static _Atomic uint64_t *bucket(int table, uint32_t key) {
    const uint64_t hash = (uint64_t)key * 0x9e3779b97f4a7c15 >> 32;
    const uint64_t count = *word(32 + 16 * (uint64_t)(table + 3) + 8);
    return word(*word(32 + 16 * (uint64_t)(table + 3)) + 8 * (hash & (count - 1)));
}

enum { ID = 0, KEY = 24, FLAGS = 28, LARGE = 9, SMALL = 10 };

/* An entry is the one of another key from now on. */
static void give_key(int table, uint64_t bytes, int id, uint32_t key) {
    *half(entry(table, bytes, id) + KEY) = key;
    *bucket(table, key) = ((uint64_t)id & 0x1ffff) + 1;
}

/* A program asks for two sets by two keys, and gets the same one. */
static void two_keys(void) {
    enum { MUCH = 1000 };
    const int large = semget(LARGE, MUCH, IPC_CREAT | 0600);
    CHECK(large >= 0);
    open_pool();
    give_key(SETS, 192, large, SMALL);
    unsigned short values[MUCH];
    for (int i = 0; i < MUCH; i++)
        values[i] = i < ROOM ? 7 : SECRET;
    for (int turn = 0; turn < 2; turn++) {
        EQUAL(semget(SMALL, ROOM, IPC_CREAT | 0600), large);
        const long before = secrets();
        FAILS(semctl(large, 0, GETALL, values), EIDRM);
        FAILS(semctl(large, 0, SETALL, values), EIDRM);
        for (int i = ROOM; i < MUCH; i++)
            EQUAL(values[i], SECRET);
        EQUAL(secrets(), before);
        /* What was told before says nothing of what is asked for later. */
        struct semid_ds ds;
        EQUAL(semctl(large, 0, IPC_STAT, &ds), 0);
    }
    give_key(SETS, 192, large, LARGE);
    EQUAL(semctl(large, 0, IPC_RMID), 0);
}

/* An id is another one's for a moment, and comes back shorter. */
static void an_id_that_comes_back(void) {
    const int large = shmget(LARGE, MANY * PAGE, IPC_CREAT | 0600);
    CHECK(large >= 0);
    open_pool();
    const uint64_t at = entry(SEGMENTS, 128, large);
    const uint32_t flags = *half(at + FLAGS), later = (uint32_t)large + 0x20000;
    give_key(SEGMENTS, 128, large, SMALL);
    *half(at + ID) = later;
    *half(at + FLAGS) = (flags & ~0x1fff00u) | (later >> 17 & 0x1fff) << 8;
    *word(at + 48) = 1;
    *word(at + 56) = PAGE;
    EQUAL(shmget(SMALL, PAGE, IPC_CREAT | 0600), (int)later);
    give_key(SEGMENTS, 128, large, LARGE);
    *half(at + ID) = (uint32_t)large;
    *half(at + FLAGS) = flags;
    FAILS((long)shmat(large, NULL, 0), EIDRM);
    *word(at + 48) = MANY;
    *word(at + 56) = MANY * PAGE;
    char *start = shmat(large, NULL, 0);
    CHECK(start != (void *)-1);
    memset(start, 1, MANY * PAGE);
    EQUAL(shmdt(start), 0);
    EQUAL(shmctl(large, IPC_RMID, NULL), 0);
}

int main(int count, char **arguments) {
    (void)arguments;
    if (count > 1) {
        newcomer();
        return 0;
    }
    sets();
    many_sets();
    forged_before();
    segments();
    many_segments();
    two_keys();
    an_id_that_comes_back();
    puts("ok: sizes that have changed are refused");
    return 0;
}
