/*
 * forbid-sysv COMMAND [ARGUMENT...]
 *
 * Runs a command that is killed (SIGSYS) as soon as it, or what it starts, enters the kernel for
 * one of the twelve System V calls: whoever survives did them all without the kernel. The native,
 * the 32-bit and the x32 forms are covered, and ipc(2), which multiplexes them for 32-bit programs.
 *
 * Exit status: the command's; 126 or 127 where it can't be run; 125 where the filter can't be had.
 */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LOAD(field)                                                                                \
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (unsigned)offsetof(struct seccomp_data, field))
#define ALLOW BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
#define DIE BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)
/* Goes to the DIE at the end of the list if the number is this one. */
#define FORBID(number, left) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (number), (left), 0)

#if defined(__x86_64__)
#define NATIVE AUDIT_ARCH_X86_64
/* x32 numbers carry this bit. */
#define NUMBER_MASK (~0x40000000U)
#elif defined(__aarch64__)
#define NATIVE AUDIT_ARCH_AARCH64
#define NUMBER_MASK (~0U)
#else
#error "the numbers of the 32-bit calls are not known for this processor"
#endif

/* 32-bit numbers; those of x86 and of Arm agree from 393 on, semop and semtimedop differ on Arm. */
static struct sock_filter filter[] = {
    LOAD(arch),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, NATIVE, 0, 16),
    /* 2: the native calls */
    LOAD(nr),
    BPF_STMT(BPF_ALU | BPF_AND | BPF_K, NUMBER_MASK),
    FORBID(SYS_shmget, 11),
    FORBID(SYS_shmat, 10),
    FORBID(SYS_shmdt, 9),
    FORBID(SYS_shmctl, 8),
    FORBID(SYS_semget, 7),
    FORBID(SYS_semop, 6),
    FORBID(SYS_semtimedop, 5),
    FORBID(SYS_semctl, 4),
    FORBID(SYS_msgget, 3),
    FORBID(SYS_msgsnd, 2),
    FORBID(SYS_msgrcv, 1),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_msgctl, 0, 1),
    /* 16 */
    DIE,
    ALLOW,
/* 18: any other architecture is taken for the 32-bit one of this processor */
#if defined(__x86_64__)
    LOAD(nr),
    FORBID(117 /* ipc */, 4),
    FORBID(420 /* semtimedop_time64 */, 3),
    BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 393 /* semget */, 0, 1),
    BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, 402 /* msgctl */, 0, 1),
    ALLOW,
    DIE,
#else
    LOAD(nr),
    FORBID(312 /* semtimedop */, 4),
    FORBID(420 /* semtimedop_time64 */, 3),
    BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 298 /* semop */, 0, 1),
    BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, 308 /* shmctl */, 0, 1),
    ALLOW,
    DIE,
#endif
};

int main(int argc, char **argv) {
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    if (argc < 2) {
        fprintf(stderr, "usage: forbid-sysv COMMAND [ARGUMENT...]\n");
        return 125;
    }
    /* Without it only root may install a filter; setuid programs then stay without their
     * privileges, so root does without. */
    if (geteuid() != 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
        fprintf(stderr, "forbid-sysv: no_new_privs is refused: %s\n", strerror(errno));
        return 125;
    }
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        fprintf(stderr, "forbid-sysv: the kernel takes no filter: %s\n", strerror(errno));
        return 125;
    }
    execvp(argv[1], argv + 1);
    fprintf(stderr, "forbid-sysv: cannot run %s: %s\n", argv[1], strerror(errno));
    return errno == ENOENT ? 127 : 126;
}
