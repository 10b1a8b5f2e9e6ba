/* How often calls enter the kernel: each system call is a signal instead, but those by which the
 * test speaks and ends, and geteuid, by which root's processes see now and then who they are. */
#ifndef ENTERED_H
#define ENTERED_H

#include "capi.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>

enum { ENTERED_ROUNDS = 3, ENTERED_CALLS = 500 };

static volatile sig_atomic_t entered;

static void entered_count(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info, (void)context;
    entered++;
}

/* From here on. A process ends by _exit then: what programs do at their end is forbidden, too. */
static inline void count_system_calls(void) {
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_geteuid, 4, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigreturn, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof steps / sizeof *steps, steps};
    struct sigaction action = {.sa_sigaction = entered_count, .sa_flags = SA_SIGINFO | SA_NODEFER};
    CHECK(sigaction(SIGSYS, &action, NULL) == 0);
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
    /* And what enters is seen. */
    (void)getppid();
    CHECK(entered == 1);
}

/* The fewest of three rounds of calls: once a second a call looks after the dead. */
static inline int fewest_entered(void (*calls)(void)) {
    int least = ENTERED_CALLS;
    for (int round = 0; round < ENTERED_ROUNDS; round++) {
        entered = 0;
        for (int i = 0; i < ENTERED_CALLS; i++)
            calls();
        least = entered < least ? entered : least;
    }
    return least;
}

#endif
