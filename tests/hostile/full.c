/*
 * A liar on a file system that is full: each word of the pool that means something leads, in turn,
 * to places that never had memory. Honest processes make all their calls then, and none of them may
 * die of SIGBUS.
 *
 *   full FILE STEP [TOOL DIRECTORY]   fills the file system on which the pool is by writing to
 * FILE. Of the lies every STEP-th is told. TOOL is the command, which looks at some, its back end
 * in DIRECTORY full calls                        makes the calls, in a process that knows nothing
 * yet
 */
#include "../conformance/tests.h"
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>

enum { PAGE = 4096, ROOT = 1024, KEY = 7, SEMAPHORES = 40, SEGMENT = 8192, ADJUSTED = 30 };
enum { PROCS = 1, WAITERS, SEGMENTS, SETS, QUEUES };
enum { PATIENCE = 30 };

struct message {
    long type;
    char text[200];
};

static const char *filler;
static unsigned char *pool, *saved, *there, *now;
static size_t size;
static int file;

/* A word of the pool's head. */
static uint64_t said(int i) {
    uint64_t value;
    memcpy(&value, saved + 32 + 8 * i, sizeof value);
    return value;
}

static uint64_t table(int i) { return said(2 * i); }
static uint64_t count(int i) { return said(2 * i + 1); }

/* Takes what is left. */
static void fill(void) {
    static char block[PAGE];
    const int f = (int)OK(open(filler, O_CREAT | O_WRONLY | O_APPEND, 0600));
    while (write(f, block, sizeof block) > 0)
        ;
    EQUAL(errno, ENOSPC);
    OK(close(f));
}

/* Honest processes; what they get does not matter, only that they get something. */

static void on_set(int set) {
    unsigned short values[SEMAPHORES];
    struct semid_ds ds;
    struct sembuf down = {ADJUSTED, -1, IPC_NOWAIT | SEM_UNDO}, up = {ADJUSTED, 1, SEM_UNDO};
    struct sembuf two[] = {{0, 1, IPC_NOWAIT}, {39, 1, IPC_NOWAIT}};
    struct sembuf wait = {1, -1, 0};
    const struct timespec moment = {0, 1000000};
    semctl(set, 0, GETVAL);
    semctl(set, 2, GETNCNT);
    semctl(set, 39, GETPID);
    semop(set, &up, 1);
    semop(set, &down, 1);
    semop(set, two, 2);
    semtimedop(set, &wait, 1, &moment);
    semctl(set, 0, IPC_STAT, (union semun){.buf = &ds});
    semctl(set, 0, GETALL, (union semun){.array = values});
    semctl(set, 0, SETVAL, (union semun){.val = 3});
}

static void on_queue(int queue) {
    struct message message = {2, "text"};
    struct msqid_ds ds;
    msgsnd(queue, &message, sizeof message.text, IPC_NOWAIT);
    msgrcv(queue, &message, sizeof message.text, 2, IPC_NOWAIT);
    msgrcv(queue, &message, sizeof message.text, -3, IPC_NOWAIT);
    msgrcv(queue, &message, sizeof message.text, 0, MSG_COPY | IPC_NOWAIT);
    msgctl(queue, IPC_STAT, &ds);
    ds.msg_qbytes = 16384;
    msgctl(queue, IPC_SET, &ds);
}

static void on_segment(int segment) {
    struct shmid_ds ds;
    shmctl(segment, IPC_STAT, &ds);
    void *start = shmat(segment, NULL, 0);
    shmctl(segment, IPC_STAT, &ds);
    if (start != (void *)-1) /* What lies there is not the library's to look at. */
        shmdt(start);
}

static int calls(void) {
    alarm(PATIENCE);
    const int set = semget(KEY, SEMAPHORES, IPC_CREAT | 0600);
    const int queue = msgget(KEY, IPC_CREAT | 0600);
    const int segment = shmget(KEY, SEGMENT, IPC_CREAT | 0600);
    on_set(set);
    on_queue(queue);
    on_segment(segment);
    if (fork() == 0) {
        on_set(set);
        _exit(0);
    }
    wait(NULL);
    struct sembuf up = {0, 1, SEM_UNDO};
    semop(semget(IPC_PRIVATE, 2, 0600), &up, 1);
    semctl(set, 0, IPC_RMID);
    msgctl(queue, IPC_RMID, NULL);
    shmctl(segment, IPC_RMID, NULL);
    return 0;
}

/* What there is before the lies. */

static int is_child(void) { return fork() == 0 && prctl(PR_SET_PDEATHSIG, SIGKILL) == 0; }

static void begin_waiting(int set, int queue) {
    struct sembuf up = {ADJUSTED, 3, SEM_UNDO}, down = {1, -1, 0};
    struct message message;
    if (is_child())
        _exit(semop(set, &up, 1) == 0 && semop(set, &down, 1) == 0);
    if (is_child())
        _exit(msgrcv(queue, &message, sizeof message.text, 9, 0) == 0);
    while (semctl(set, 1, GETNCNT) != 1)
        usleep(1000);
    usleep(50000);
}

static int indices[QUEUES + 1];

static void prepare(void) {
    const int set = (int)OK(semget(KEY, SEMAPHORES, IPC_CREAT | 0600));
    const int queue = (int)OK(msgget(KEY, IPC_CREAT | 0600));
    const int segment = (int)OK(shmget(KEY, SEGMENT, IPC_CREAT | 0600));
    struct message message = {2, "text"};
    struct sembuf up = {ADJUSTED, 3, SEM_UNDO};
    OK(semop(set, &up, 1));
    for (int i = 0; i < 3; i++)
        OK(msgsnd(queue, &message, sizeof message.text, 0));
    OK((long)shmat(segment, NULL, 0));
    indices[SETS] = set & 0x1ffff;
    indices[QUEUES] = queue & 0x1ffff;
    indices[SEGMENTS] = segment & 0x1ffff;
    begin_waiting(set, queue);
}

static void save(void) {
    file = (int)OK(open(getenv("VSHMEM_POOL"), O_RDWR));
    struct stat st;
    OK(fstat(file, &st));
    size = (size_t)st.st_size;
    pool = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    saved = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(pool != MAP_FAILED && saved != MAP_FAILED && (there = calloc(size / PAGE, 1)) &&
          (now = calloc(size / PAGE, 1)));
    /* Pages that have memory and were never touched count, too, which SEEK_DATA leaves out. */
    OK(mincore(pool, size, there));
    for (size_t at = 0; at < size; at += PAGE)
        if (there[at / PAGE] &= 1)
            memcpy(saved + at, pool + at, PAGE);
}

/* The pool as it was: pages that have come since go again. */
static void restore(void) {
    OK(mincore(pool, size, now));
    for (size_t at = 0; at < size; at += PAGE)
        if (there[at / PAGE])
            memcpy(pool + at, saved + at, PAGE);
        else if (now[at / PAGE] & 1)
            OK(fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at, PAGE));
    fill();
}

static void put(uint64_t at, uint64_t value) {
    if (!there[at / PAGE]) /* A liar lies where there is memory. */
        check_failed(__FILE__, __LINE__, "there is no memory at %#lx", at);
    memcpy(pool + at, &value, sizeof value);
}

static int died_of(const char *const *arguments) {
    const pid_t child = _Fork(); /* The liar's library sees nothing of it. */
    CHECK(child >= 0);
    if (child == 0) {
        const int quiet = open("/dev/null", O_WRONLY);
        dup2(quiet, 1);
        dup2(quiet, 2);
        execv(arguments[0], (char *const *)(uintptr_t)arguments);
        _exit(127);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
        check_failed(__FILE__, __LINE__, "%s can't be run", arguments[0]);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static const char *tool, *directory;
static long lies, looks, failures;

static void judge(const char *const *arguments, uint64_t at, uint64_t lie) {
    const int signal = died_of(arguments);
    if (signal) {
        printf("FAILED   %s died of %s: %#lx at %#lx\n", arguments[1], strsignal(signal), lie, at);
        failures++;
    }
}

/* The back end says so when it is started anew after a death. */
static void judge_back_end(uint64_t at, uint64_t lie) {
    const char *const begin[] = {tool, "agent", "--directory", directory, getenv("VSHMEM_POOL"),
                                 NULL};
    const char *const end[] = {tool, "agent", "--directory", directory, "--stop", NULL};
    char path[4096], text[4096] = "";
    judge(begin, at, lie);
    usleep(300000);
    snprintf(path, sizeof path, "%s/log", directory);
    const int log = (int)OK(open(path, O_RDONLY));
    OK(read(log, text, sizeof text - 1));
    OK(close(log));
    judge(end, at, lie);
    if (strstr(text, "has died")) {
        printf("FAILED   the back end: %#lx at %#lx: %s", lie, at, text);
        failures++;
    }
}

static void tell(uint64_t at, uint64_t lie) {
    const char *const self[] = {"/proc/self/exe", "calls", NULL};
    const char *const check[] = {tool, "check", getenv("VSHMEM_POOL"), NULL};
    const char *const list[] = {tool, "ipcs", "--waiters", "--pool", getenv("VSHMEM_POOL"), NULL};
    lies++;
    put(at, lie);
    judge(self, at, lie);
    restore();
    if (!tool || lies % 4)
        return;
    put(at, lie);
    switch (lies / 4 % 3) {
    case 0:
        judge(check, at, lie);
        break;
    case 1:
        judge(list, at, lie);
        break;
    default:
        judge_back_end(at, lie);
    }
    looks++;
    restore();
}

static int step;

static void tell_of(uint64_t from, uint64_t words) {
    /* Far behind what is in use, so without memory: of the small heap, and of three tables. */
    const uint64_t hole = said(19) + said(20) * 256 / 8 * 7;
    const uint64_t block = said(20) / 8 * 7 + 1;
    const uint64_t values[] = {
        hole,
        block,
        count(WAITERS) - 9,
        count(PROCS) - 9,
        count(SETS) - 9,
        (count(PROCS) - 9) | 1ULL << 32,
        said(22) + 64 * (uint64_t)PAGE, /* a segment's page */
        hole >> 6,
    };
    static int turn;
    for (uint64_t i = 0; i < words; i++)
        for (size_t j = 0; j < sizeof values / sizeof *values; j++)
            if (turn++ % step == 0)
                tell(from + 8 * i, values[j]);
}

static uint64_t word(uint64_t at) {
    uint64_t value;
    memcpy(&value, saved + at, sizeof value);
    return value;
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "calls") == 0)
        return calls();
    filler = argv[1];
    step = atoi(argv[2]);
    tool = argc > 4 ? argv[3] : NULL;
    directory = argv[4];
    setvbuf(stdout, NULL, _IOLBF, 0);
    prepare();
    save();
    fill();
    const uint64_t set = table(SETS) + (uint64_t)indices[SETS] * 192;
    const uint64_t queue = table(QUEUES) + (uint64_t)indices[QUEUES] * 256;
    const uint64_t segment = table(SEGMENTS) + (uint64_t)indices[SEGMENTS] * 128;
    tell_of(ROOT, 3 + 15 + 56 + 6 + 4);
    tell_of(set, 192 / 8);
    tell_of(queue, 256 / 8);
    tell_of(segment, 128 / 8);
    tell_of(table(WAITERS), 2 * 256 / 8);
    tell_of(table(PROCS), 2 * 128 / 8);
    tell_of(word(set + 48) + 16 * ADJUSTED, 2);
    tell_of(word(set + 72), 4);      /* what is to be undone */
    tell_of(word(set + 104), 4);     /* the set's log */
    tell_of(word(segment + 112), 6); /* who has it attached */
    tell_of(word(queue + 48), 12);   /* the ring */
    tell_of(word(queue + 240), 4);
    tell_of(4096, 8);                    /* the pool's log */
    for (int kind = 6; kind < 9; kind++) /* hash tables */
        for (uint64_t at = table(kind); at < table(kind) + 8 * count(kind); at += 8)
            if (word(at))
                tell_of(at, 1);
    printf("%ld lies on a full file system, %ld looks by the tools, %ld deaths\n", lies, looks,
           failures);
    return failures != 0;
}
