/*
 * Sizes that change after a process was told of them: a hostile member has rewritten them. Each
 * such call must fail, with EIDRM, and touch nothing but what the program has room for. Changes the
 * pool by its file, as docs/layout.md says.
 */
#include "../conformance/check.h"
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { SEGMENTS = 3, SETS = 4, PAGE = 4096 };

static unsigned char *pool;

static _Atomic uint64_t *word(uint64_t offset) {
    return (_Atomic uint64_t *)(void *)(pool + offset);
}

/* The entry of an id, by the tables that the superblock names. */
static uint64_t entry(int table, uint64_t bytes, int id) {
    return *word(32 + 16 * (uint64_t)table) + ((uint64_t)id & 0x1ffff) * bytes;
}

static void open_pool(void) {
    const int fd = open(getenv("VSHMEM_POOL"), O_RDWR);
    struct stat st;
    CHECK(fd >= 0 && fstat(fd, &st) == 0);
    pool = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(pool != MAP_FAILED);
    close(fd);
}

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

    /* Who looks an id up is told anew. */
    const int named = semget(7, 3, IPC_CREAT | 0600);
    CHECK(named >= 0);
    count = word(entry(SETS, 192, named) + 40);
    *count = 8;
    EQUAL(semget(7, 0, 0), named);
    EQUAL(semctl(named, 0, IPC_STAT, &ds), 0);
    EQUAL(ds.sem_nsems, 8);
    EQUAL(semctl(named, 0, GETALL, values), 0);
    EQUAL(values[3], 0);
    *count = 3;
    EQUAL(semctl(named, 0, IPC_RMID), 0);
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

int main(void) {
    sets();
    segments();
    puts("ok: sizes that have changed are refused");
    return 0;
}
