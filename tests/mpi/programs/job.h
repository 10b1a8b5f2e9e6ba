/* What the programs share: checks that end the job, texts that show a byte that is wrong or in a
   wrong place, and how a job says that it is done. */
#ifndef JOB_H
#define JOB_H
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size;

#define CHECK(good, ...)                                                                           \
    do {                                                                                           \
        if (!(good)) {                                                                             \
            fprintf(stderr, "rank %d, %s line %d: ", rank, __FILE__, __LINE__);                    \
            fprintf(stderr, __VA_ARGS__);                                                          \
            fputc('\n', stderr);                                                                   \
            MPI_Abort(MPI_COMM_WORLD, 9);                                                          \
        }                                                                                          \
    } while (0)

static inline void begin(int *argc, char ***argv) {
    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
}

/* How many hosts the ranks are on, for rank 0. */
static inline int hosts(MPI_Comm comm) {
    char mine[MPI_MAX_PROCESSOR_NAME] = "";
    int length, count = 0;
    MPI_Get_processor_name(mine, &length);
    char(*all)[MPI_MAX_PROCESSOR_NAME] = malloc(size * sizeof mine);
    CHECK(all, "no memory");
    MPI_Gather(mine, sizeof mine, MPI_CHAR, all, sizeof mine, MPI_CHAR, 0, comm);
    for (int i = 0; rank == 0 && i < size; i++) {
        int known = 0;
        for (int j = 0; j < i; j++)
            known |= !strcmp(all[i], all[j]);
        count += !known;
    }
    free(all);
    return count;
}

/* Ends a program that found nothing wrong. */
static inline int done(const char *what) {
    int on = hosts(MPI_COMM_WORLD);
    if (rank == 0)
        printf("%s: %d ranks on %d hosts\n", what, size, on);
    MPI_Finalize();
    return 0;
}

static inline unsigned char byte_at(unsigned seed, size_t i) {
    return (unsigned char)((seed * 2654435761u + (unsigned)i * 2246822519u) >> 23);
}

static inline unsigned char *fill(unsigned char *text, size_t length, unsigned seed) {
    for (size_t i = 0; i < length; i++)
        text[i] = byte_at(seed, i);
    return text;
}

static inline void check_text(const unsigned char *text, size_t length, unsigned seed) {
    for (size_t i = 0; i < length; i++)
        CHECK(text[i] == byte_at(seed, i), "byte %zu of %zu is wrong", i, length);
}

static inline unsigned char *room(size_t length) {
    unsigned char *text = malloc(length);
    CHECK(text, "no memory");
    return text;
}
#endif
