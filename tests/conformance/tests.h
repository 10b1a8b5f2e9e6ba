/*
 * What the conformance programs share: tests with names, each in a process of its own with a time
 * limit.
 *
 * A program lists its tests with TESTS(...) and prints `ok NAME`, `FAIL NAME: where and what`, or
 * `skip NAME: why`. It exits with 1 if one failed. An argument selects the tests whose names
 * contain it; those that LEFT_OUT names are not run.
 */
#ifndef TESTS_H
#define TESTS_H

#include "../lib/check.h"

/* Seconds after which a test counts as stuck. */
#ifndef TIME_LIMIT
#define TIME_LIMIT 60
#endif
/* Its exit status if it can't be done here. */
#define STATUS_SKIPPED 71

struct test {
    const char *name;
    void (*run)(void);
};

__attribute__((noreturn, unused)) static void skip(const char *why) {
    dprintf(STDOUT_FILENO, "  %s\n", why);
    _exit(STATUS_SKIPPED);
}

/* Forks; the child does the work and exits with 0 if nothing failed. */
__attribute__((unused)) static pid_t child(void (*work)(void *), void *argument) {
    pid_t pid = (pid_t)OK(fork());
    if (pid == 0) {
        work(argument);
        _exit(0);
    }
    return pid;
}

/* Waits until a child, which does nothing else that takes long, sleeps in its call: it is found
 * asleep again and again. A fixed nap is too short where there are many processes for a processor.
 */
__attribute__((unused)) static void sleeps(pid_t pid) {
    char path[40];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    for (int found = 0; found < 5; nap_ms(2)) {
        char state = 0;
        FILE *file = fopen(path, "re");
        CHECK(file && fscanf(file, "%*d (%*[^)]) %c", &state) == 1);
        fclose(file);
        CHECK(state != 'Z');
        found = state == 'S' ? found + 1 : 0;
    }
}

/* Waits for a child that must end with this exit status. */
__attribute__((unused)) static void joined(pid_t pid, int wanted) {
    int status;
    EQUAL(OK(waitpid(pid, &status, 0)), pid);
    if (WIFSIGNALED(status))
        check_failed(__FILE__, __LINE__, "a child died of signal %d", WTERMSIG(status));
    if (WEXITSTATUS(status) == STATUS_FAILED)
        _exit(STATUS_FAILED); /* It has said why. */
    EQUAL(WEXITSTATUS(status), wanted);
}

__attribute__((unused)) static void killed(pid_t pid) {
    int status;
    OK(kill(pid, SIGKILL));
    EQUAL(OK(waitpid(pid, &status, 0)), pid);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* Installs a handler; SA_RESTART makes no difference to these calls. */
__attribute__((unused)) static void handle(int number, void (*handler)(int)) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    OK(sigaction(number, &action, NULL));
}

__attribute__((unused)) static void do_nothing(int number) { (void)number; }

__attribute__((unused)) static int run_test(const struct test *test) {
    int status;
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        setpgid(0, 0);
        test->run();
        _exit(0);
    }
    setpgid(pid, pid);
    double began = seconds_now();
    while (waitpid(pid, &status, WNOHANG) == 0) {
        if (seconds_now() - began > TIME_LIMIT) {
            kill(-pid, SIGKILL);
            waitpid(pid, &status, 0);
            printf("FAIL %s: stuck for %d s\n", test->name, TIME_LIMIT);
            return 1;
        }
        nap_ms(1);
    }
    kill(-pid, SIGKILL); /* Children that a failed test has left. */
    if (WIFSIGNALED(status))
        printf("FAIL %s: signal %d\n", test->name, WTERMSIG(status));
    else if (WEXITSTATUS(status) == STATUS_SKIPPED)
        printf("skip %s\n", test->name);
    else if (WEXITSTATUS(status) != 0)
        printf("FAIL %s\n", test->name);
    else
        printf("ok %s\n", test->name);
    return WIFSIGNALED(status) ||
           (WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != STATUS_SKIPPED);
}

/* Is the name one of those in LEFT_OUT, which blanks separate? */
__attribute__((unused)) static int is_left_out(const char *name) {
    const char *names = getenv("LEFT_OUT");
    size_t length = strlen(name);
    for (const char *at = names; at && (at = strstr(at, name)) != NULL; at += length)
        if ((at == names || at[-1] == ' ') && (at[length] == ' ' || at[length] == 0))
            return 1;
    return 0;
}

__attribute__((unused)) static int run_tests(const struct test *tests, size_t count,
                                             const char *wanted) {
    int failed = 0;
    for (size_t i = 0; i < count; i++)
        if ((wanted == NULL || strstr(tests[i].name, wanted) != NULL) &&
            !is_left_out(tests[i].name))
            failed += run_test(&tests[i]);
    return failed > 0;
}

#define TESTS(...)                                                                                 \
    int main(int argc, char **argv) {                                                              \
        static const struct test tests[] = {__VA_ARGS__};                                          \
        return run_tests(tests, sizeof tests / sizeof *tests, argc > 1 ? argv[1] : NULL);          \
    }

#endif
