/*
 * storm [--signals] [--seconds N | --kills N] [--seed N] [SCENARIO...]
 *
 * Runs each scenario for its share of the time, or of the kills: those that were killed while they
 * worked. Prints `ok NAME` or `FAIL NAME` for each and exits with 1 if one failed.
 */
#define TIME_LIMIT time_limit
static int time_limit;
#include "storm.h"
#include <getopt.h>
#include <sys/mman.h>
#include <sys/prctl.h>

static const struct scenario *const scenarios[] = {
    &undo_scenario,    &mutex_scenario, &whole_scenario,   &queue_scenario,
    &segment_scenario, &churn_scenario, &holders_scenario, &letters_scenario,
};
enum { SCENARIOS = sizeof scenarios / sizeof *scenarios };

struct board *board;

static int with_signals;
static double seconds = 20;
/* To be done; 0: as many as there is time for. */
static unsigned long wanted_kills;
static struct life dice = {0, 0, 12345};
static unsigned lives;
static unsigned long all_kills, all_operations;

struct worker {
    pid_t pid;
    unsigned life;
};
static struct worker workers[WORKERS];

/* What a round's scenario has taken. */
static struct {
    void *start;
    size_t size;
} taken[4];

void *shared_memory(size_t size) {
    void *start =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(start != MAP_FAILED);
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        if (taken[i].start == NULL) {
            taken[i].start = start;
            taken[i].size = size;
            break;
        }
    return start;
}

static void give_memory_back(void) {
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
        if (taken[i].start != NULL)
            OK(munmap(taken[i].start, taken[i].size));
        taken[i].start = NULL;
    }
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
}

static void replace_worker(const struct scenario *scenario, int slot) {
    kill_worker(slot);
    spawn(scenario, slot);
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
    int slot = (int)below(&dice, WORKERS), mortal = slot >= scenario->survivors;
    unsigned kind = with_signals ? below(&dice, 10) : 0;
    if (kind < 4) {
        if (mortal)
            replace_worker(scenario, slot);
    } else if (kind < 7) {
        OK(kill(workers[slot].pid, SIGUSR1));
    } else {
        OK(kill(workers[slot].pid, SIGSTOP));
        usleep(below(&dice, 3000));
        /* Some die while they are stopped. */
        if (kind == 9 && mortal)
            replace_worker(scenario, slot);
        else
            OK(kill(workers[slot].pid, SIGCONT));
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

void rest(const struct life *life) {
    if (!atomic_load(&board->pause))
        return;
    atomic_store(&board->resting[life->slot], 1);
    while (atomic_load(&board->pause))
        nap_ms(1);
    atomic_store(&board->resting[life->slot], 0);
}

static int all_rest(const struct scenario *scenario, int wanted) {
    for (int slot = 0; slot < scenario->survivors; slot++)
        if (atomic_load(&board->resting[slot]) != wanted)
            return 0;
    return 1;
}

static void survivors_live(const struct scenario *scenario) {
    for (int slot = 0; slot < scenario->survivors; slot++) {
        int status;
        if (OK(waitpid(workers[slot].pid, &status, WNOHANG)) == workers[slot].pid) {
            expect_proper_end(status);
            check_failed(__FILE__, __LINE__, "a survivor has left");
        }
    }
}

/* Every call of a survivor ends, though others died in the middle of whatever they did. */
static void survivors_rest(const struct scenario *scenario, int pause) {
    double began = seconds_now();
    atomic_store(&board->pause, pause);
    if (pause && scenario->rouse != NULL)
        scenario->rouse();
    while (!all_rest(scenario, pause)) {
        survivors_live(scenario);
        if (seconds_now() - began > STUCK_AFTER) {
            describe_workers();
            check_failed(__FILE__, __LINE__, "a survivor's call has not ended for %d s",
                         STUCK_AFTER);
        }
        usleep(200);
    }
}

/* Kills all but the survivors, and looks. */
static void look(const struct scenario *scenario) {
    for (int slot = scenario->survivors; slot < WORKERS; slot++)
        kill_worker(slot);
    if (scenario->survivors > 0)
        survivors_rest(scenario, 1);
    scenario->check();
}

static void go_on(const struct scenario *scenario) {
    for (int slot = scenario->survivors; slot < WORKERS; slot++)
        spawn(scenario, slot);
    if (scenario->survivors > 0)
        survivors_rest(scenario, 0);
}

static void stop_if_stuck(double moved) {
    if (seconds_now() - moved > STUCK_AFTER) {
        describe_workers();
        check_failed(__FILE__, __LINE__, "no worker has got anywhere for %d s", STUCK_AFTER);
    }
}

/* With IPC objects of its own. `kills` is what the whole storm is to have done. */
static void run_round(const struct scenario *scenario, double until, unsigned long kills) {
    memset(board, 0, sizeof *board);
    lives = 0;
    scenario->begin();
    for (int slot = 0; slot < WORKERS; slot++)
        spawn(scenario, slot);
    double moved = seconds_now(), checked = moved;
    unsigned long progress = 0;
    while (seconds_now() < until && (kills == 0 || all_kills < kills) &&
           lives < MOST_LIVES / 3 * 2) {
        usleep(below(&dice, 1500));
        respawn_those_who_left(scenario);
        disturb(scenario);
        double now = seconds_now();
        if (atomic_load(&board->progress) != progress) {
            progress = atomic_load(&board->progress);
            moved = now;
        }
        stop_if_stuck(moved);
        if (now - checked > 0.4) {
            look(scenario);
            go_on(scenario);
            checked = moved = seconds_now();
        }
    }
    look(scenario);
    for (int slot = 0; slot < scenario->survivors; slot++)
        kill_worker(slot);
    atomic_store(&board->pause, 0);
    scenario->check();
    scenario->end();
    all_operations += atomic_load(&board->progress);
    give_memory_back();
}

static void run_scenario(const struct scenario *scenario, double share, unsigned long kills) {
    double until = seconds_now() + share;
    do {
        run_round(scenario, until, kills);
        nothing_is_left();
    } while (seconds_now() < until && (kills == 0 || all_kills < kills));
    printf("  %s: %lu kills, %lu operations\n", scenario->name, all_kills, all_operations);
    fflush(stdout);
    if (all_kills < kills)
        check_failed(__FILE__, __LINE__, "there was no time for all %lu kills", kills);
}

static const struct scenario *chosen;
static double share;
static unsigned long share_of_kills;

static void storm(void) {
    handle(SIGUSR1, do_nothing);
    capacity(); /* What is made once and kept is made now. */
    int before = capacity();
    run_scenario(chosen, share, share_of_kills);
    /* Whoever finds no room left takes from the dead what they still have, in the midst of what it
     * has made: so there may be a little less room the first time. */
    capacity();
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
                                            {"kills", required_argument, NULL, 'k'},
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
        case 'k':
            wanted_kills = strtoul(optarg, NULL, 0);
            break;
        case 'r':
            seed = (unsigned)strtoul(optarg, NULL, 0);
            break;
        default:
            fprintf(stderr, "usage: storm [--signals] [--seconds N | --kills N] [--seed N] "
                            "[SCENARIO...]\n");
            return 2;
        }
    }
    dice.random = seed | 1;
    /* Hundreds of kills a second are usual: ten are slow enough for any machine. */
    if (wanted_kills > 0)
        seconds = 60 + (double)wanted_kills / 10;
    board = shared_memory(sizeof *board);
    for (int i = 0; i < SCENARIOS; i++)
        count += wanted(scenarios[i]->name, argv + optind);
    for (int i = 0; i < SCENARIOS; i++) {
        char name[64];
        if (!wanted(scenarios[i]->name, argv + optind))
            continue;
        chosen = scenarios[i];
        share = seconds / count;
        share_of_kills = (wanted_kills + (unsigned)count - 1) / (unsigned)count;
        time_limit = (int)share + 120;
        snprintf(name, sizeof name, "crash/%s%s", chosen->name,
                 with_signals ? "_with_signals" : "");
        dice.random += 1000003; /* the scenario runs in a child: its dice are its own */
        failed += run_test(&(struct test){name, storm});
    }
    if (failed > 0)
        printf("seed %u\n", seed);
    return failed > 0 || count == 0;
}
