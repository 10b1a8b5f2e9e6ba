/* Ranks that are bound have processors of their own: no other rank of the host may use them, or if
   the argument is "all", no other rank of the job, whose hosts share a kernel. */
#define _GNU_SOURCE
#include "job.h"
#include <sched.h>

struct place {
    char host[MPI_MAX_PROCESSOR_NAME];
    cpu_set_t processors;
};

int main(int argc, char **argv) {
    struct place mine = {0};
    int length;
    begin(&argc, &argv);
    int among_all = argc > 1 && !strcmp(argv[1], "all");
    MPI_Get_processor_name(mine.host, &length);
    CHECK(!sched_getaffinity(0, sizeof mine.processors, &mine.processors), "no processors");
    struct place *all = calloc((size_t)size, sizeof *all);
    CHECK(all, "no memory");
    MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all, sizeof mine, MPI_BYTE, MPI_COMM_WORLD);
    for (int i = 0; i < size; i++) {
        cpu_set_t both;
        CPU_AND(&both, &mine.processors, &all[i].processors);
        if (i != rank && (among_all || !strcmp(all[i].host, mine.host)))
            CHECK(!CPU_COUNT(&both), "may use %d processors of rank %d's", CPU_COUNT(&both), i);
    }
    free(all);
    return done("bound");
}
