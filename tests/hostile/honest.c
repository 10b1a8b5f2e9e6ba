/*
 * honest SECONDS SEED: honest members at work in a pool that somebody else writes to. Workers make
 * every call with all sorts of arguments. Calls may fail; but no worker may crash, no call may last
 * longer than LIMIT seconds, and nothing may be written behind a buffer. Workers come and go. Run
 * under the library; the enemy is another program. Prints how many calls were made, and how many of
 * them went well.
 */
#include "../conformance/tests.h"
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/time.h>

enum { WORKERS = 3, LIMIT = 60, CANARY = 1 << 16, MOST_TEXT = 9000, MOST_SEMS = 12, KEYS = 3 };

/* Where a worker is, for whoever watches it. */
static struct place {
    const char *_Atomic call;
    _Atomic long since; /* seconds; 0: in none */
    _Atomic unsigned long calls, good;
} * board;

static struct place *me;
static uint64_t state;

static uint64_t random64(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state * 0x2545f4914f6cdd1dULL;
}
static unsigned below(unsigned limit) { return (unsigned)(random64() % limit); }

static long seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec;
}

static void begin(const char *call) {
    atomic_store(&me->call, call);
    atomic_store(&me->since, seconds() + 1);
}
static long end(long result) {
    atomic_store(&me->since, 0);
    atomic_fetch_add(&me->calls, 1);
    if (result != -1)
        atomic_fetch_add(&me->good, 1);
    return result;
}
#define CALL(name, ...) (begin(#name), end((long)name(__VA_ARGS__)))

static void on_alarm(int signal) { (void)signal; }

/* A buffer with something behind it that nobody may write to. */
static unsigned char *buffer(size_t len) {
    static unsigned char memory[MOST_TEXT + 4096 + CANARY];
    memset(memory + len, 0xa5, CANARY);
    return memory;
}
static void untouched(const unsigned char *memory, size_t len, const char *call) {
    for (size_t i = len; i < len + CANARY; i++)
        if (memory[i] != 0xa5) {
            fprintf(stderr, "%s wrote %zu bytes behind its buffer\n", call, i - len);
            abort();
        }
}

/* What /proc lists of the pool, whatever an enemy makes it say. */
static void listing(void) {
    const char *paths[] = {"/proc/sysvipc/shm", "/proc/sysvipc/sem", "/proc/sysvipc/msg",
                           "/proc/sys/kernel/sem"};
    const int fd = (int)CALL(open, paths[below(4)], O_RDONLY | O_CLOEXEC);
    char text[4096];
    while (fd != -1 && read(fd, text, sizeof text) > 0)
        ;
    if (fd != -1)
        close(fd);
}

static void status(int id, const char *kind) {
    if (below(8) == 0) {
        listing();
        return;
    }
    const int commands[] = {IPC_STAT, IPC_INFO, 13, 14, 15, 18, 19, 20};
    const int command = commands[below(sizeof commands / sizeof *commands)];
    const int which = command == IPC_STAT ? id : (int)below(8);
    const size_t len = 128; /* the largest of them */
    unsigned char *to = buffer(len);
    if (*kind == 'm' && command != 18 && command != 19 && command != 20)
        CALL(msgctl, which, command, (struct msqid_ds *)(void *)to);
    else if (*kind == 's' && command < 16)
        CALL(shmctl, which, command, (struct shmid_ds *)(void *)to);
    else if (*kind == 'a')
        CALL(semctl, which, 0, command, (void *)to);
    untouched(to, len, "a status");
}

static int known_count(int set) {
    struct semid_ds ds;
    return CALL(semctl, set, 0, IPC_STAT, &ds) == -1 ? -1 : (int)ds.sem_nsems;
}

static void operations(int set) {
    struct sembuf sops[4];
    const unsigned count = 1 + below(below(4) ? 1 : 4);
    for (unsigned i = 0; i < count; i++) {
        sops[i].sem_num = (unsigned short)below(4);
        sops[i].sem_op = (short)((int)below(7) - 3);
        sops[i].sem_flg = (short)((below(2) ? IPC_NOWAIT : 0) | (below(2) ? SEM_UNDO : 0));
    }
    if (below(2)) {
        const struct timespec soon = {0, below(1000000)};
        CALL(semtimedop, set, sops, count, &soon);
    } else {
        CALL(semop, set, sops, count);
    }
}

static void use_set(void) {
    const int key = 1 + (int)below(KEYS), made = 1 + (int)below(4);
    const int set = (int)CALL(semget, below(8) ? key : IPC_PRIVATE, made, IPC_CREAT | 0600);
    if (set == -1)
        return;
    const int count = known_count(set);
    if (count <= 0 || count > MOST_TEXT / 2)
        return;
    for (unsigned i = below(40); i > 0; i--)
        switch (below(14)) {
        case 0: {
            unsigned char *to = buffer((size_t)count * 2);
            CALL(semctl, set, 0, GETALL, (void *)to);
            untouched(to, (size_t)count * 2, "GETALL");
            break;
        }
        case 1: {
            unsigned char *from = buffer((size_t)count * 2);
            memset(from, 0, (size_t)count * 2);
            CALL(semctl, set, 0, SETALL, (void *)from);
            break;
        }
        case 2:
            CALL(semctl, set, (int)below(5), SETVAL, (int)below(5));
            break;
        case 3:
            CALL(semctl, set, (int)below(5), (int[]){GETVAL, GETPID, GETNCNT, GETZCNT}[below(4)]);
            break;
        case 4:
            status(set, "a set");
            break;
        default:
            operations(set);
        }
    if (!below(6))
        CALL(semctl, set, 0, IPC_RMID);
}

static void use_queue(void) {
    static struct {
        long type;
        char text[MOST_TEXT];
    } message;
    const int key = 1 + (int)below(KEYS);
    const int queue = (int)CALL(msgget, below(8) ? key : IPC_PRIVATE, IPC_CREAT | 0600);
    if (queue == -1)
        return;
    for (unsigned i = below(60); i > 0; i--) {
        const size_t len = below(3) ? below(200) : below(8192);
        const int wait = below(3) ? IPC_NOWAIT : 0;
        switch (below(12)) {
        case 0:
            status(queue, "message queue");
            break;
        case 1:
        case 2:
        case 3:
        case 4:
        case 5:
            message.type = 1 + (long)below(3);
            CALL(msgsnd, queue, &message, len, wait);
            break;
        default: {
            const long types[] = {0, 0, 0, 1, 2, -2, -9};
            const int flags[] = {0, 0, MSG_NOERROR, MSG_NOERROR, MSG_EXCEPT, MSG_COPY};
            int flag = flags[below(6)] | wait;
            if (flag & MSG_COPY)
                flag |= IPC_NOWAIT;
            unsigned char *to = buffer(sizeof(long) + len);
            CALL(msgrcv, queue, to, len, types[below(7)], flag);
            untouched(to, sizeof(long) + len, "msgrcv");
        }
        }
    }
    if (!below(6))
        CALL(msgctl, queue, IPC_RMID, NULL);
}

/* As much as the program was told of can be touched, and what lies behind is left alone. */
static void use_segment(void) {
    const int key = 1 + (int)below(KEYS);
    const size_t asked = 4096 * (1 + below(8));
    const int id = (int)CALL(shmget, below(8) ? key : IPC_PRIVATE, asked, IPC_CREAT | 0600);
    if (id == -1)
        return;
    struct shmid_ds ds;
    if (CALL(shmctl, id, IPC_STAT, &ds) == -1)
        return;
    const size_t told = ds.shm_segsz;
    if (told == 0 || told > 1 << 20)
        return;
    const size_t room = (told + 4095) / 4096 * 4096;
    unsigned char *place = NULL;
    if (below(2)) {
        place =
            mmap(NULL, room + CANARY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(place != MAP_FAILED);
        memset(place + room, 0xa5, CANARY);
    }
    unsigned char *at = (unsigned char *)CALL(shmat, id, place, place ? SHM_REMAP : 0);
    if (at != (void *)-1) {
        memset(at, 1, told);
        if (place)
            untouched(place, room, "shmat with SHM_REMAP");
        if (below(4))
            CALL(shmdt, at);
        else
            munmap(at, room); /* behind the library's back */
    }
    if (place)
        munmap(place, room + CANARY);
    if (below(2))
        status(id, "segment");
    if (!below(4))
        CALL(shmctl, id, IPC_RMID, NULL);
}

static void work(int number, uint64_t seed) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    me = board + number;
    state = seed * 0x9e3779b97f4a7c15ULL + 1;
    struct sigaction action = {.sa_handler = on_alarm};
    sigaction(SIGALRM, &action, NULL);
    const struct itimerval often = {{0, 3000}, {0, 3000}};
    setitimer(ITIMER_REAL, &often, NULL);
    for (unsigned rounds = 5 + below(200); rounds > 0; rounds--) {
        switch (below(4)) {
        case 0:
            use_segment();
            break;
        case 1:
            use_queue();
            break;
        default:
            use_set();
        }
        if (!below(64)) {
            begin("fork");
            const pid_t child = fork();
            if (child == 0) {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                /* A timer is not inherited; without it, who lost its parent just now waits for
                 * ever. */
                setitimer(ITIMER_REAL, &often, NULL);
                use_set();
                _exit(0);
            }
            int ended = 0;
            while (waitpid(child, &ended, 0) == -1 && errno == EINTR)
                ;
            end(0);
            CHECK(child == -1 || !WIFSIGNALED(ended));
        }
    }
    begin("exit");
    exit(0);
}

static int watch(pid_t *workers) {
    for (int i = 0; i < WORKERS; i++) {
        const long since = atomic_load(&board[i].since);
        if (since == 0 || seconds() + 1 - since <= LIMIT)
            continue;
        fprintf(stderr, "%s has lasted more than %d s (pid %d)\n", atomic_load(&board[i].call),
                LIMIT, (int)workers[i]);
        const char *stop = getenv("HOSTILE_KEEP");
        if (stop)
            pause();
        kill(workers[i], SIGABRT);
        return 0;
    }
    return 1;
}

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    const long until = seconds() + strtol(argv[1], NULL, 10);
    uint64_t seed = strtoull(argv[2], NULL, 0);
    board = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(board != MAP_FAILED);
    pid_t workers[WORKERS] = {0};
    int fine = 1;
    while (fine && seconds() < until) {
        for (int i = 0; i < WORKERS; i++) {
            int ended;
            if (workers[i] != 0 && waitpid(workers[i], &ended, WNOHANG) == 0)
                continue;
            if (workers[i] != 0 && (!WIFEXITED(ended) || WEXITSTATUS(ended) != 0)) {
                fprintf(stderr, "a worker was ended by %s %d, in or after %s\n",
                        WIFSIGNALED(ended) ? "signal" : "status",
                        WIFSIGNALED(ended) ? WTERMSIG(ended) : WEXITSTATUS(ended),
                        atomic_load(&board[i].call));
                fine = 0;
            }
            atomic_store(&board[i].since, 0);
            workers[i] = fork();
            if (workers[i] == 0)
                work(i, ++seed * WORKERS + (uint64_t)i);
            seed++;
        }
        fine = fine && watch(workers);
        usleep(20000);
    }
    unsigned long calls = 0, good = 0;
    for (int i = 0; i < WORKERS; i++) {
        calls += board[i].calls;
        good += board[i].good;
        kill(workers[i], SIGKILL);
        waitpid(workers[i], NULL, 0);
    }
    printf("%lu %lu\n", calls, good);
    return fine ? 0 : 1;
}
