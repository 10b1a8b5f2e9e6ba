/*
 * How a rank waits that has libvshmem-ucx preloaded: when it really leaves its processor.
 * Arguments: a library that asks UCX for progress, and what VSHMEM_UCX_YIELD says of processors:
 * "shares" those of its host with ranks, or "sleeps" since machines share them.
 */
#include "capi.h"
#include <dlfcn.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <sys/prctl.h>

enum { IN_VAIN = 20, YIELDS = 4 };

/* How often, and how often by a sleep. */
static volatile sig_atomic_t left, slept;

static void count(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    left++;
    slept += info->si_syscall != SYS_sched_yield;
}

/* From here on, each system call that leaves the processor is a signal instead. */
static void count_leaves(void) {
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sched_yield, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clock_nanosleep, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof steps / sizeof *steps, steps};
    struct sigaction action = {.sa_sigaction = count, .sa_flags = SA_SIGINFO};
    CHECK(sigaction(SIGSYS, &action, NULL) == 0);
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
}

static unsigned (*progress)(void *);

/* How often the rank leaves its processor in so many questions, with the MPI's own yield after each
 * if it has such. */
static int leaves(unsigned made, int questions, int yields) {
    left = slept = 0;
    for (int i = 0; i < questions; i++) {
        CHECK(progress(&made) == made);
        if (yields)
            sched_yield();
    }
    return left;
}

int main(int argc, char **argv) {
    CHECK(argc == 2 || argc == 3);
    const int sleeps = argc == 3 && !strcmp(argv[2], "sleeps");
    void *opened = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    CHECK(opened != NULL);
    progress = (unsigned (*)(void *))dlsym(opened, "progress");
    CHECK(progress != NULL);
    count_leaves();

    /* A program's own. */
    sched_yield(), sched_yield();
    CHECK(left == 2);
    /* An MPI that has none. */
    CHECK(leaves(0, 10 * IN_VAIN, 0) == (argc == 3 ? 10 : 0));
    CHECK(slept == (sleeps ? 10 - YIELDS : 0));
    CHECK(leaves(1, 10 * IN_VAIN, 0) == 0);
    CHECK(leaves(0, IN_VAIN - 1, 0) == 0);
    CHECK(leaves(1, 1, 0) == 0);
    CHECK(leaves(0, IN_VAIN - 1, 0) == 0);
    /* One that yields after each question. */
    CHECK(leaves(1, 1, 0) == 0);
    CHECK(leaves(1, 10 * IN_VAIN, 1) == 0);
    CHECK(leaves(0, 10 * IN_VAIN, 1) == 10);
    CHECK(slept == (sleeps ? 10 - YIELDS : 0));
    CHECK(leaves(1, 1, 0) == 0);
    CHECK(leaves(0, YIELDS * IN_VAIN, 1) == YIELDS && slept == 0);
    /* A program's own again: the first may be the MPI's. */
    leaves(1, 1, 0);
    left = 0;
    sched_yield(), sched_yield(), sched_yield();
    CHECK(left == 2);
    return 0;
}
