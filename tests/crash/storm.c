/*
 * storm [--signals] [--seconds N] [--seed N] [SCENARIO...]
 *
 * Runs each scenario for its share of the time. Prints `ok NAME` or `FAIL NAME` for each and exits
 * with 1 if one failed.
 */
#include "storm.h"
#include <getopt.h>
#include <sys/mman.h>
#include <sys/prctl.h>

static const struct scenario *const scenarios[] = {
    &undo_scenario,  &mutex_scenario,   &whole_scenario,
    &queue_scenario, &segment_scenario, &churn_scenario,
};
enum { SCENARIOS = sizeof scenarios / sizeof *scenarios };

struct board *board;

static int with_signals;
static double seconds = 20;
static struct life dice = {0, 0, 12345};
static unsigned lives;
static unsigned long all_kills;

struct worker {
    pid_t pid;
    unsigned life;
};
static struct worker workers[WORKERS];

void *shared_memory(size_t size) {
    void *start =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(start != MAP_FAILED);
    return start;
}

static void spawn(const struct scenario *scenario, int slot) {
    struct life life = {slot, ++lives, below(&dice, 1U << 30) + 1};
    CHECK(lives < MOST_LIVES);
    pid_t pid = (pid_t)OK(fork());
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        scenario->work(&life);
        exit(0);
    }
    workers[slot] = (struct worker){pid, life.number};
}

/* A worker may exit by itself, but only properly. */
static void expect_proper_end(int status) {
    if (WIFEXITED(status) && WEXITSTATUS(status) == STATUS_FAILED)
        _exit(STATUS_FAILED); /* It has said why. */
    if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL)
        check_failed(__FILE__, __LINE__, "a worker died of signal %d", WTERMSIG(status));
    CHECK(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
}

static void kill_worker(int slot) {
    int status;
    atomic_store(&board->condemned[workers[slot].life], 1);
    OK(kill(workers[slot].pid, SIGKILL));
    EQUAL(OK(waitpid(workers[slot].pid, &status, 0)), workers[slot].pid);
    expect_proper_end(status);
    atomic_fetch_add(&board->kills[slot], 1);
    all_kills++;
}

static void respawn_those_who_left(const struct scenario *scenario) {
    for (int slot = 0; slot < WORKERS; slot++) {
        int status;
        if (OK(waitpid(workers[slot].pid, &status, WNOHANG)) == workers[slot].pid) {
            expect_proper_end(status);
            atomic_store(&board->condemned[workers[slot].life], 1);
            spawn(scenario, slot);
        }
    }
}

static void disturb(const struct scenario *scenario) {
    int slot = (int)below(&dice, WORKERS);
    unsigned kind = with_signals ? below(&dice, 10) : 0;
    if (kind < 4) {
        kill_worker(slot);
        spawn(scenario, slot);
    } else if (kind < 7) {
        OK(kill(workers[slot].pid, SIGUSR1));
    } else {
        OK(kill(workers[slot].pid, SIGSTOP));
        usleep(below(&dice, 3000));
        /* Some die while they are stopped. */
        if (kind == 9) {
            kill_worker(slot);
            spawn(scenario, slot);
        } else {
            OK(kill(workers[slot].pid, SIGCONT));
        }
    }
}

static void describe_workers(void) {
    for (int slot = 0; slot < WORKERS; slot++) {
        char path[64], text[128] = "gone";
        snprintf(path, sizeof path, "/proc/%d/syscall", (int)workers[slot].pid);
        FILE *file = fopen(path, "r");
        if (file != NULL) {
            if (fgets(text, sizeof text, file) == NULL)
                strcpy(text, "?\n");
            fclose(file);
        }
        printf("  worker %d, process %d: system call %s", slot, (int)workers[slot].pid, text);
    }
    fflush(stdout);
}

static void run_scenario(const struct scenario *scenario, double share) {
    memset(board, 0, sizeof *board);
    lives = 0;
    scenario->begin();
    for (int slot = 0; slot < WORKERS; slot++)
        spawn(scenario, slot);
    double began = seconds_now(), moved = began, checked = began;
    unsigned long progress = 0;
    while (seconds_now() - began < share) {
        usleep(below(&dice, 1500));
        respawn_those_who_left(scenario);
        disturb(scenario);
        double now = seconds_now();
        if (atomic_load(&board->progress) != progress) {
            progress = atomic_load(&board->progress);
            moved = now;
        } else if (now - moved > STUCK_AFTER) {
            describe_workers();
            check_failed(__FILE__, __LINE__, "no worker has got anywhere for %d s", STUCK_AFTER);
        }
        if (now - checked > 0.4 || now - began >= share) {
            for (int slot = 0; slot < WORKERS; slot++)
                kill_worker(slot);
            scenario->check();
            for (int slot = 0; slot < WORKERS; slot++)
                spawn(scenario, slot);
            checked = seconds_now();
        }
    }
    for (int slot = 0; slot < WORKERS; slot++)
        kill_worker(slot);
    scenario->check();
    scenario->end();
    printf("  %s: %lu kills, %lu operations\n", scenario->name, all_kills, progress);
    fflush(stdout);
}

/* How much there is room for, up to a bound: segments, then the same with queues full of messages.
 */
static int capacity(void) {
    enum { MOST = 3000 };
    static int segments[MOST], queues[MOST];
    struct {
        long type;
        char text[4000];
    } message = {1, {0}};
    int count = 0, full = 0;
    while (count < MOST && (segments[count] = shmget(IPC_PRIVATE, 65536, 0600)) != -1)
        count++;
    for (int i = 0; i < count; i++)
        OK(shmctl(segments[i], IPC_RMID, NULL));
    while (full < MOST && (queues[full] = msgget(IPC_PRIVATE, 0600)) != -1) {
        int sent = 0;
        while (sent < 4 && msgsnd(queues[full], &message, sizeof message.text, IPC_NOWAIT) == 0)
            sent++;
        full++;
        if (sent < 4)
            break;
    }
    for (int i = 0; i < full; i++)
        OK(msgctl(queues[i], IPC_RMID, NULL));
    return count + full;
}

struct usage {
    struct shm_info segments;
    struct seminfo sets;
    struct msginfo queues;
};

static int usage(struct usage *now) {
    OK(shmctl(0, SHM_INFO, (struct shmid_ds *)&now->segments));
    OK(semctl(0, 0, SEM_INFO, (union semun){.info = &now->sets}));
    OK(msgctl(0, MSG_INFO, (struct msqid_ds *)&now->queues));
    return now->segments.used_ids + now->sets.semusz + now->queues.msgpool;
}

static void nothing_is_left(void) {
    struct usage now;
    /* What a dead process had begun to remove is removed when it is known to be dead, which may be
     * a moment after its parent was told. */
    double began = seconds_now();
    while (usage(&now) > 0 && seconds_now() - began < 1)
        ;
    EQUAL(now.segments.used_ids, 0);
    EQUAL(now.segments.shm_tot, 0);
    EQUAL(now.sets.semusz, 0);
    EQUAL(now.sets.semaem, 0);
    EQUAL(now.queues.msgpool, 0);
    EQUAL(now.queues.msgmap, 0);
    EQUAL(now.queues.msgtql, 0);
}

static const struct scenario *chosen;
static double share;

static void storm(void) {
    handle(SIGUSR1, do_nothing);
    capacity(); /* What is made once and kept is made now. */
    int before = capacity();
    run_scenario(chosen, share);
    nothing_is_left();
    int after = capacity();
    if (after < before)
        check_failed(__FILE__, __LINE__, "room for %d before the storm, for %d after it", before,
                     after);
}

static int wanted(const char *name, char **names) {
    if (*names == NULL)
        return 1;
    for (; *names != NULL; names++)
        if (strcmp(*names, name) == 0)
            return 1;
    return 0;
}

int main(int argc, char **argv) {
    static const struct option options[] = {{"signals", no_argument, NULL, 's'},
                                            {"seconds", required_argument, NULL, 't'},
                                            {"seed", required_argument, NULL, 'r'},
                                            {NULL, 0, NULL, 0}};
    unsigned seed = (unsigned)time(NULL);
    int failed = 0, count = 0;
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (option) {
        case 's':
            with_signals = 1;
            break;
        case 't':
            seconds = atof(optarg);
            break;
        case 'r':
            seed = (unsigned)strtoul(optarg, NULL, 0);
            break;
        default:
            fprintf(stderr, "usage: storm [--signals] [--seconds N] [--seed N] [SCENARIO...]\n");
            return 2;
        }
    }
    dice.random = seed | 1;
    board = shared_memory(sizeof *board);
    for (int i = 0; i < SCENARIOS; i++)
        count += wanted(scenarios[i]->name, argv + optind);
    for (int i = 0; i < SCENARIOS; i++) {
        char name[64];
        if (!wanted(scenarios[i]->name, argv + optind))
            continue;
        chosen = scenarios[i];
        share = seconds / count;
        snprintf(name, sizeof name, "crash/%s%s", chosen->name,
                 with_signals ? "_with_signals" : "");
        dice.random += 1000003; /* the scenario runs in a child: its dice are its own */
        failed += run_test(&(struct test){name, storm});
    }
    if (failed > 0)
        printf("seed %u\n", seed);
    return failed > 0 || count == 0;
}
