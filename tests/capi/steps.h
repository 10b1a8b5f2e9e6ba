/* A debugger's steps through what a child does between two breakpoints. */
#ifndef STEPS_H
#define STEPS_H

#include "capi.h"
#include <sys/ptrace.h>
#include <sys/user.h>

/* Before and behind what is counted, in the child. */
static inline void breakpoint(void) { __asm__ volatile("int3" ::: "memory"); }

/* Where the library begins in a process, and where its code does and ends. */
struct code {
    unsigned long base, from, to;
};

static inline struct code find_code(pid_t child) {
    struct code code = {0, 0, 0};
    char path[64], line[512], mode[8], name[256];
    snprintf(path, sizeof path, "/proc/%d/maps", (int)child);
    FILE *maps = fopen(path, "r");
    CHECK(maps != NULL);
    while (fgets(line, sizeof line, maps) != NULL) {
        unsigned long begin, end;
        if (sscanf(line, "%lx-%lx %7s %*s %*s %*s %255s", &begin, &end, mode, name) != 4 ||
            strstr(name, "libvshmem") == NULL)
            continue;
        if (code.base == 0)
            code.base = begin;
        if (mode[2] == 'x')
            code.from = begin, code.to = end;
    }
    fclose(maps);
    CHECK(code.from != 0);
    return code;
}

static inline void resume(pid_t child, int how, int expected) {
    int status;
    CHECK(ptrace(how, child, NULL, NULL) == 0);
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == expected);
}

static inline unsigned long at(pid_t child) {
    struct user_regs_struct registers;
    CHECK(ptrace(PTRACE_GETREGS, child, NULL, &registers) == 0);
    return registers.rip;
}

/* Whether the instruction at an address is a breakpoint of ours. */
static inline int is_breakpoint(pid_t child, unsigned long address) {
    errno = 0;
    long word = ptrace(PTRACE_PEEKTEXT, child, (void *)address, NULL);
    return errno == 0 && (word & 0xff) == 0xcc;
}

/* Lets a child run to the next breakpoint, and counts the instructions of the library from there to
 * the one behind it. `tells`: their addresses are printed. */
static inline int step_through(pid_t child, const struct code *code, int tells) {
    resume(child, PTRACE_CONT, SIGTRAP);
    int ours = 0;
    for (unsigned long now = at(child); !is_breakpoint(child, now); now = at(child)) {
        if (now >= code->from && now < code->to) {
            ours++;
            if (tells)
                printf("%#lx\n", now - code->base);
        }
        resume(child, PTRACE_SINGLESTEP, SIGTRAP);
    }
    resume(child, PTRACE_CONT, SIGTRAP); /* over the second breakpoint */
    return ours;
}

#endif
