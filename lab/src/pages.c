/* pages small|huge|reserved PROGRAM [ARGUMENT]...: runs a program whose memory is in pages of that
 * kind.
 *
 * small: no huge page, whatever the kernel's mode is; what the program starts has none either.
 * huge: malloc asks for transparent ones. reserved: malloc takes those that the host has set aside.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static int fail(const char *what) {
    fprintf(stderr, "pages: %s: %s\n", what, strerror(errno));
    return 1;
}

int main(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: pages small|huge|reserved PROGRAM [ARGUMENT]...\n");
        return 2;
    }
    const char *kind = argv[1];
    if (strcmp(kind, "small") == 0) {
        if (prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) != 0)
            return fail("PR_SET_THP_DISABLE");
    } else if (strcmp(kind, "huge") == 0 || strcmp(kind, "reserved") == 0) {
        const char *tunable = *kind == 'h' ? "glibc.malloc.hugetlb=1" : "glibc.malloc.hugetlb=2";
        if (setenv("GLIBC_TUNABLES", tunable, 1) != 0)
            return fail("GLIBC_TUNABLES");
    } else {
        fprintf(stderr, "pages: there are no pages called %s\n", kind);
        return 2;
    }
    execvp(argv[2], argv + 2);
    return fail(argv[2]);
}
