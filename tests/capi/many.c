/* A call costs what it costs among ten sets where there are very many: instructions of the library,
 * counted as in instructions.c. `many COUNT`: in a pool that has room for so many, as its limits
 * say. */
#include "steps.h"

enum { TEN = 10, USED = 8, ROUNDS = 3 };
static int *ids;
static int used[USED];

/* As ftok makes them, keys differ in bits of both ends. */
static key_t key_of(int i) { return (key_t)((unsigned)(i + 1) << 17 | (unsigned)(i + 1) >> 15); }

static void make(int i) {
    CHECK((ids[i] = semget(key_of(i), 1, IPC_CREAT | IPC_EXCL | 0600)) != -1);
}

static void find(int i) { CHECK(semget(key_of(i), 1, 0) == ids[i]); }
static void v(int i) { CHECK(semop(ids[i], OP(0, 1, 0), 1) == 0); }
static void p(int i) { CHECK(semop(ids[i], OP(0, -1, 0), 1) == 0); }
static void look(int i) { CHECK(semctl(ids[i], 0, GETVAL) == 0); }
static void unmake(int i) { CHECK(semctl(ids[i], 0, IPC_RMID) == 0); }

static const struct call {
    const char *name;
    void (*make)(int);
} calls[] = {{"semget", find},     {"V", v}, {"P", p}, {"GETVAL", look}, {"IPC_RMID", unmake},
             {"semget, new", make}};
enum { CALLS = sizeof calls / sizeof *calls };

/* Makes each call on each of the sets that are used; in the last round between breakpoints. */
static void rounds(void) {
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < CALLS; i++)
            for (int k = 0; k < USED; k++) {
                if (round == ROUNDS - 1)
                    breakpoint();
                calls[i].make(used[k]);
                if (round == ROUNDS - 1)
                    breakpoint();
            }
}

static void traced(int count) {
    CHECK((ids = calloc((size_t)count, sizeof *ids)) != NULL);
    CHECK(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0);
    CHECK(raise(SIGSTOP) == 0);
    for (int i = 0; i < TEN; i++)
        make(i);
    for (int k = 0; k < USED; k++)
        used[k] = k;
    rounds();
    for (int i = TEN; i < count; i++)
        make(i);
    for (int k = 0; k < USED; k++)
        used[k] = count / USED * k / 32 * 32 + k; /* no two share the place of a shortcut */
    rounds();
    _exit(0);
}

static void count_round(pid_t child, const struct code *code, int counts[CALLS]) {
    for (int i = 0; i < CALLS; i++) {
        counts[i] = 0;
        for (int k = 0; k < USED; k++)
            counts[i] += step_through(child, code, 0);
        counts[i] /= USED;
    }
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    int count = atoi(argv[1]), few[CALLS], many[CALLS], failed = 0, status;
    CHECK(count > 1000);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0)
        traced(count);
    CHECK(waitpid(child, &status, 0) == child && WIFSTOPPED(status));
    struct code code = find_code(child);
    count_round(child, &code, few);
    count_round(child, &code, many);
    for (int i = 0; i < CALLS; i++) {
        int good = few[i] > 0 && many[i] * 2 <= few[i] * 3;
        printf("%-12s %4d instructions among %d, %4d among %d%s\n", calls[i].name, few[i], TEN,
               many[i], count, good ? "" : ": TOO MANY");
        failed += !good;
    }
    CHECK(ptrace(PTRACE_CONT, child, NULL, NULL) == 0);
    wait_for_success(child);
    return failed != 0;
}
