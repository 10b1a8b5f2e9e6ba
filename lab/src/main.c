/* ipcbench: one measurement a run.
 *
 *   ipcbench [-t SECONDS] [-u UID] NAME ARGUMENT
 *   ipcbench -l                            the names and their arguments
 *
 * Prints a line, "VALUE UNIT", for each value; handover adds percentiles. The lab runs it as it is,
 * and under the interposer.
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    int (*run)(const char *argument);
    const char *arguments;
} benchmarks[] = {
    {"memory", bench_memory, "mmap|shm[,large]: loads and stores"},
    {"semaphore", bench_semaphore, "plain|undo|open|many: P and V, nobody else there"},
    {"queue", bench_queue, "SIZE: send and receive, nobody else there"},
    {"handover", bench_handover,
     "bare|semaphore|queue|types|posix: there and back across two processors"},
    {"stream", bench_stream, "[bare,]SIZE: messages from one process to another"},
    {"segment", bench_segment, "SIZE: get, attach, touch, detach, remove"},
    {"doubled", bench_doubled, "SIZE: a buffer that is mapped twice in a row"},
    {"lookup", bench_lookup, "SETS,SEGMENTS: get, attach and operate among so many IPC objects"},
    {"crowd", bench_crowd,
     "mutex|undo|set|queue|ring,[=]N[,long]: N processes per processor, or =N of all"},
    {"sleeper", bench_sleeper, "wake|semaphore|queue: long waits"},
    {"process", bench_process,
     "plain|used|attached|first|resident: fork, exit and wait; the first call; memory in use"},
};

static void list(void) {
    for (size_t i = 0; i < sizeof benchmarks / sizeof *benchmarks; i++)
        printf("%-10s %s\n", benchmarks[i].name, benchmarks[i].arguments);
}

int main(int argc, char **argv) {
    int first = options(argc, argv, list);
    if (first < 0)
        return 2;
    if (argc - first != 2) {
        fprintf(stderr,
                "ipcbench: a benchmark and its argument are needed; ipcbench -l lists them\n");
        return 2;
    }
    const char *name = argv[first], *argument = argv[first + 1];
    for (size_t i = 0; i < sizeof benchmarks / sizeof *benchmarks; i++)
        if (strcmp(name, benchmarks[i].name) == 0)
            return benchmarks[i].run(argument);
    fprintf(stderr, "ipcbench: there is no benchmark \"%s\"; ipcbench -l lists them\n", name);
    return 2;
}
