/* How many instructions of the library a call takes: a debugger steps through it. Times differ from
 * machine to machine and from minute to minute; these numbers differ between compilers by a few.
 *
 *   instructions              counts, and fails where a call takes more than it may
 *   instructions older        the same, of a library that Rust 1.85 has compiled: a twentieth more
 *   instructions where CALL   prints the addresses of the library that the call executes
 *
 * What libc and the kernel do (memcpy, time) is not counted. The caller is an ordinary user: how
 * often the kernel is asked who root is depends on how much time has passed. The fewest of three
 * times count: once a second a call writes the time down, or looks after the dead. */
#include "steps.h"

static int semaphores, letters, segment, made;
static void *attached;
static struct message letter __attribute__((aligned(128))) = {.type = 1};

static void p(void) { CHECK(semop(semaphores, OP(0, -1, 0), 1) == 0); }
static void v(void) { CHECK(semop(semaphores, OP(0, 1, 0), 1) == 0); }
static void p_undo(void) { CHECK(semop(semaphores, OP(0, -1, SEM_UNDO), 1) == 0); }
static void v_undo(void) { CHECK(semop(semaphores, OP(0, 1, SEM_UNDO), 1) == 0); }

static void both(void) {
    struct sembuf ops[] = {{.sem_num = 0, .sem_op = -1}, {.sem_num = 0, .sem_op = 1}};
    CHECK(semop(semaphores, ops, 2) == 0);
}

static void send_64(void) { CHECK(msgsnd(letters, &letter, 64, 0) == 0); }
static void receive_64(void) { CHECK(msgrcv(letters, &letter, 64, 0, 0) == 64); }
static void send_16(void) { CHECK(msgsnd(letters, &letter, 16, 0) == 0); }
static void receive_16(void) { CHECK(msgrcv(letters, &letter, 64, 0, 0) == 16); }
static void find(void) { CHECK(shmget(4711, 4096, 0) == segment); }
static void attach(void) { CHECK((attached = shmat(segment, NULL, 0)) != (void *)-1); }
static void detach(void) { CHECK(shmdt(attached) == 0); }

static void make_4k(void) { CHECK((made = shmget(IPC_PRIVATE, 4 << 10, 0600)) != -1); }
static void make_1m(void) { CHECK((made = shmget(IPC_PRIVATE, 1 << 20, 0600)) != -1); }
static void unmake(void) { CHECK(shmctl(made, IPC_RMID, NULL) == 0); }

/* In the order in which they are made, so that none has to wait. */
static const struct call {
    const char *name;
    void (*make)(void);
    int most;
} calls[] = {
    {"P", p, 110},
    {"V", v, 110},
    {"P SEM_UNDO", p_undo, 320},
    {"V SEM_UNDO", v_undo, 285},
    {"P and V at once", both, 606},
    {"msgsnd 64 B", send_64, 264},
    {"msgrcv 64 B", receive_64, 287},
    {"msgsnd 16 B", send_16, 260},
    {"msgrcv 16 B", receive_16, 277},
    {"shmget", find, 915},
    {"shmat", attach, 7550},
    {"shmdt", detach, 4100},
    {"shmget, 4 KiB", make_4k, 7300},
    {"IPC_RMID, 4 KiB", unmake, 4000},
    {"shmget, 1 MiB", make_1m, 8100},
    {"IPC_RMID, 1 MiB", unmake, 5100},
};
enum { CALLS = sizeof calls / sizeof *calls, WARM = 4, TIMES = 3 };
static int fewest[CALLS];

static void make_objects(void) {
    semaphores = semget(IPC_PRIVATE, 2, 0600);
    letters = msgget(IPC_PRIVATE, 0600);
    segment = shmget(4711, 4096, IPC_CREAT | 0600);
    CHECK(semaphores != -1 && letters != -1 && segment != -1);
    v();
}

static void traced(void) {
    CHECK(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0);
    CHECK(raise(SIGSTOP) == 0);
    CHECK(semget(IPC_PRIVATE, 1, 0600) !=
          -1); /* opens the pool, which belongs to root where root runs this */
    if (geteuid() == 0)
        CHECK(setresgid(65534, 65534, 65534) == 0 && setresuid(65534, 65534, 65534) == 0);
    make_objects();
    for (int round = 0; round <= WARM; round++)
        for (int i = 0; i < CALLS; i++) {
            if (round == WARM)
                breakpoint();
            calls[i].make();
            if (round == WARM)
                breakpoint();
        }
    CHECK(shmctl(segment, IPC_RMID, NULL) == 0 && msgctl(letters, IPC_RMID, NULL) == 0);
    CHECK(semctl(semaphores, 0, IPC_RMID) == 0);
    _exit(0);
}

static void count(const char *where) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0)
        traced();
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFSTOPPED(status));
    struct code code = find_code(child);
    for (int i = 0; i < CALLS; i++) {
        int ours = step_through(child, &code, where != NULL && strcmp(where, calls[i].name) == 0);
        CHECK(ours > 0);
        if (fewest[i] == 0 || ours < fewest[i])
            fewest[i] = ours;
    }
    CHECK(ptrace(PTRACE_CONT, child, NULL, NULL) == 0);
    wait_for_success(child);
}

int main(int argc, char **argv) {
    const char *where = argc == 3 && strcmp(argv[1], "where") == 0 ? argv[2] : NULL;
    int older = argc == 2 && strcmp(argv[1], "older") == 0;
    CHECK(argc == 1 || older || where != NULL);
    for (int time = 0; time < (where != NULL ? 1 : TIMES); time++)
        count(where);
    int failed = 0;
    for (int i = 0; where == NULL && i < CALLS; i++) {
        int most = calls[i].most + (older ? calls[i].most / 20 : 0);
        int good = fewest[i] <= most;
        printf("%-16s %4d instructions, at most %4d%s\n", calls[i].name, fewest[i], most,
               good ? "" : ": TOO MANY");
        failed += !good;
    }
    return failed != 0;
}
