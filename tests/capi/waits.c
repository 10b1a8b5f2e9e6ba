/*
 * How a rank waits that has libvshmem-ucx preloaded: when it really leaves its processor.
 * Arguments: a library that asks UCX for progress, and "shares" if VSHMEM_UCX_YIELD says that ranks
 * share processors.
 */
#include "check.h"
#include <dlfcn.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <sys/prctl.h>

enum { IN_VAIN = 20 };

static volatile sig_atomic_t left;

static void count(int signal) {
    (void)signal;
    left++;
}

/* From here on, each system call sched_yield is a signal instead. */
static void count_yields(void) {
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sched_yield, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof steps / sizeof *steps, steps};
    CHECK(signal(SIGSYS, count) != SIG_ERR);
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
}

static unsigned (*progress)(void *);

/* How often the rank leaves its processor in so many questions, with the MPI's own yield after each
 * if it has such. */
static int leaves(unsigned made, int questions, int yields) {
    left = 0;
    for (int i = 0; i < questions; i++) {
        CHECK(progress(&made) == made);
        if (yields)
            sched_yield();
    }
    return left;
}

int main(int argc, char **argv) {
    CHECK(argc == 2 || argc == 3);
    const int shares = argc == 3;
    void *opened = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    CHECK(opened != NULL);
    progress = (unsigned (*)(void *))dlsym(opened, "progress");
    CHECK(progress != NULL);
    count_yields();

    /* A program's own. */
    sched_yield(), sched_yield();
    CHECK(left == 2);
    /* An MPI that has none. */
    CHECK(leaves(0, 10 * IN_VAIN, 0) == (shares ? 10 : 0));
    CHECK(leaves(1, 10 * IN_VAIN, 0) == 0);
    CHECK(leaves(0, IN_VAIN - 1, 0) == 0);
    CHECK(leaves(1, 1, 0) == 0);
    CHECK(leaves(0, IN_VAIN - 1, 0) == 0);
    /* One that yields after each question. */
    CHECK(leaves(1, 1, 0) == 0);
    CHECK(leaves(1, 10 * IN_VAIN, 1) == 0);
    CHECK(leaves(0, 10 * IN_VAIN, 1) == 10);
    /* A program's own again: the first may be the MPI's. */
    leaves(1, 1, 0);
    left = 0;
    sched_yield(), sched_yield(), sched_yield();
    CHECK(left == 2);
    return 0;
}
