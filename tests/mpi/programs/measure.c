/* Measures as OSU's benchmarks do: latency, bandwidth and two-way bandwidth between the first rank
   and the last, and the time of collectives among all.

     measure WHAT,... [BYTES,... [MILLISECONDS [REPETITIONS]]]

   For each size (the powers of two up to 4 MiB), as many operations as fill MILLISECONDS (200) are
   timed, REPETITIONS (5) times. Prints, for each: WHAT, bytes, median, lowest, highest, unit. */
#include "job.h"

#define MOST (64 << 20)

static unsigned char *out, *in;

/* Messages on their way at once: 64 as OSU has it, but of large ones fewer, which fill the way as
   well and don't take seconds over a network that is emulated. */
static int window(int length) {
    int most = (4 << 20) / (length > 0 ? length : 1);
    return most > 64 ? 64 : most > 4 ? most : 4;
}

/* There and back. */
static void latency(int length) {
    int last = size - 1;
    if (rank == 0) {
        MPI_Send(out, length, MPI_BYTE, last, 1, MPI_COMM_WORLD);
        MPI_Recv(in, length, MPI_BYTE, last, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else if (rank == last) {
        MPI_Recv(in, length, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(out, length, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
    }
}

/* A window full of messages, then a word in answer. */
static void stream(int length, int sends, int receives) {
    MPI_Request open[2 * 64];
    int peer = rank == 0 ? size - 1 : 0, n = 0, messages = window(length);
    for (int i = 0; receives && i < messages; i++)
        MPI_Irecv(in, length, MPI_BYTE, peer, 2, MPI_COMM_WORLD, &open[n++]);
    for (int i = 0; sends && i < messages; i++)
        MPI_Isend(out, length, MPI_BYTE, peer, 2, MPI_COMM_WORLD, &open[n++]);
    MPI_Waitall(n, open, MPI_STATUSES_IGNORE);
    latency(1);
}

static void bandwidth(int length) {
    if (rank == 0 || rank == size - 1)
        stream(length, rank == 0, rank != 0);
}

static void two_way(int length) {
    if (rank == 0 || rank == size - 1)
        stream(length, 1, 1);
}

static void barrier(int length) {
    (void)length;
    MPI_Barrier(MPI_COMM_WORLD);
}

static void bcast(int length) { MPI_Bcast(out, length, MPI_BYTE, 0, MPI_COMM_WORLD); }

static void allreduce(int length) {
    MPI_Allreduce(out, in, length / (int)sizeof(float), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void allgather(int length) {
    MPI_Allgather(out, length, MPI_BYTE, in, length, MPI_BYTE, MPI_COMM_WORLD);
}

static void alltoall(int length) {
    MPI_Alltoall(out, length, MPI_BYTE, in, length, MPI_BYTE, MPI_COMM_WORLD);
}

static const struct measure {
    const char *name;
    void (*run)(int length);
    int least;         /* bytes; 0: it has no size */
    int all;           /* each rank has so much for each */
    double per_second; /* units of bytes, or 0: microseconds */
    double messages;   /* of an operation, or of each place in its window */
} measures[] = {
    {"latency", latency, 1, 0, 0, 2},     {"bandwidth", bandwidth, 1, 0, 1e6, 1},
    {"two-way", two_way, 1, 0, 1e6, 2},   {"barrier", barrier, 0, 0, 0, 1},
    {"bcast", bcast, 1, 0, 0, 1},         {"allreduce", allreduce, sizeof(float), 0, 0, 1},
    {"allgather", allgather, 1, 1, 0, 1}, {"alltoall", alltoall, 1, 1, 0, 1},
};

/* Seconds of so many operations, as the slowest rank has it. */
static double timed(const struct measure *what, int length, int count) {
    MPI_Barrier(MPI_COMM_WORLD);
    double begun = MPI_Wtime();
    for (int i = 0; i < count; i++)
        what->run(length);
    double took = MPI_Wtime() - begun;
    MPI_Allreduce(MPI_IN_PLACE, &took, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return took;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(const struct measure *what, int length, double seconds, int repetitions) {
    double *figures = calloc((size_t)repetitions, sizeof *figures);
    CHECK(figures, "no memory");
    int count = 1;
    /* This also warms up. */
    while (timed(what, length, count) < seconds && count < 1 << 24)
        count *= 2;
    double messages = what->messages * (what->per_second ? window(length) : 1);
    for (int i = 0; i < repetitions; i++) {
        double each = timed(what, length, count) / count / messages;
        figures[i] = what->per_second ? length / each / what->per_second : each * 1e6;
    }
    qsort(figures, (size_t)repetitions, sizeof *figures, compare);
    if (rank == 0) {
        printf("%-10s %8d %11.3f %11.3f %11.3f %s\n", what->name, length, figures[repetitions / 2],
               figures[0], figures[repetitions - 1], what->per_second ? "MB/s" : "us");
        fflush(stdout);
    }
    free(figures);
}

/* All sizes of a list, or the powers of two up to 4 MiB. */
static void measure_sizes(const struct measure *what, const char *sizes, double seconds,
                          int repetitions) {
    if (!what->least) {
        measure(what, 0, seconds, repetitions);
        return;
    }
    for (int length = what->least; !sizes && length <= 4 << 20; length *= 2)
        measure(what, length, seconds, repetitions);
    for (const char *at = sizes; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        int length = atoi(at);
        CHECK(length >= what->least && length <= MOST, "%s has no size %s", what->name, at);
        measure(what, length, seconds, repetitions);
    }
}

static const struct measure *find(const char *name) {
    const struct measure *what = measures, *end = measures + sizeof measures / sizeof *measures;
    while (what < end && strcmp(what->name, name))
        what++;
    CHECK(what < end, "nothing is called %s", name);
    return what;
}

/* The largest size of the list. */
static int largest(const char *sizes) {
    int most = sizes ? 0 : 4 << 20;
    for (const char *at = sizes; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        most = atoi(at) > most ? atoi(at) : most;
    return most;
}

int main(int argc, char **argv) {
    begin(&argc, &argv);
    const char *sizes = argc > 2 ? argv[2] : NULL;
    double seconds = argc > 3 ? atof(argv[3]) / 1000 : 0.2;
    int repetitions = argc > 4 ? atoi(argv[4]) : 5, most = largest(sizes);
    CHECK(argc > 1 && most > 0 && most <= MOST && repetitions > 0,
          "usage: measure WHAT,... [BYTES,... [MILLISECONDS [REPETITIONS]]]");
    out = calloc((size_t)most, (size_t)size);
    in = calloc((size_t)most, (size_t)size);
    CHECK(out && in, "no memory");
    for (char *name = strtok(argv[1], ","); name; name = strtok(NULL, ","))
        measure_sizes(find(name), sizes, seconds, repetitions);
    free(out);
    free(in);
    return MPI_Finalize();
}
