/* Measures as OSU's benchmarks do: latency, bandwidth and two-way bandwidth between the first rank
   and the last, and the time of collectives among all.

     measure WHAT [MOST [MILLISECONDS [REPETITIONS]]]

   For each size, powers of two up to MOST bytes (4194304), as many operations as fill MILLISECONDS
   (200) are timed, REPETITIONS (5) times. Prints, for each: WHAT, bytes, median, lowest, highest,
   unit. */
#include "job.h"

#define WINDOW 64

static unsigned char *out, *in;

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
    MPI_Request open[2 * WINDOW];
    int peer = rank == 0 ? size - 1 : 0, n = 0;
    for (int i = 0; receives && i < WINDOW; i++)
        MPI_Irecv(in, length, MPI_BYTE, peer, 2, MPI_COMM_WORLD, &open[n++]);
    for (int i = 0; sends && i < WINDOW; i++)
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
    int least;         /* bytes */
    int all;           /* each rank has so much for each */
    double per_second; /* units of bytes, or 0: microseconds */
    double messages;   /* of an operation */
} measures[] = {
    {"latency", latency, 1, 0, 0, 2},
    {"bandwidth", bandwidth, 1, 0, 1e6, WINDOW},
    {"two-way", two_way, 1, 0, 1e6, 2 * WINDOW},
    {"barrier", barrier, 0, 0, 0, 1},
    {"bcast", bcast, 1, 0, 0, 1},
    {"allreduce", allreduce, sizeof(float), 0, 0, 1},
    {"allgather", allgather, 1, 1, 0, 1},
    {"alltoall", alltoall, 1, 1, 0, 1},
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
    for (int i = 0; i < repetitions; i++) {
        double each = timed(what, length, count) / count / what->messages;
        figures[i] = what->per_second ? length / each / what->per_second : each * 1e6;
    }
    qsort(figures, (size_t)repetitions, sizeof *figures, compare);
    if (rank == 0) {
        printf("%-10s %8d %11.2f %11.2f %11.2f %s\n", what->name, length, figures[repetitions / 2],
               figures[0], figures[repetitions - 1], what->per_second ? "MB/s" : "us");
        fflush(stdout);
    }
    free(figures);
}

static long argument(int argc, char **argv, int which, long otherwise) {
    return argc > which ? atol(argv[which]) : otherwise;
}

int main(int argc, char **argv) {
    begin(&argc, &argv);
    long most = argument(argc, argv, 2, 4 << 20), repetitions = argument(argc, argv, 4, 5);
    double seconds = (double)argument(argc, argv, 3, 200) / 1000;
    CHECK(argc > 1 && most > 0 && most <= 64 << 20 && repetitions > 0,
          "usage: measure WHAT [MOST [MILLISECONDS [REPETITIONS]]]");
    out = calloc((size_t)most, (size_t)size);
    in = calloc((size_t)most, (size_t)size);
    CHECK(out && in, "no memory");
    const struct measure *what = measures, *end = measures + sizeof measures / sizeof *measures;
    while (what < end && strcmp(what->name, argv[1]))
        what++;
    CHECK(what < end, "nothing is called %s", argv[1]);
    if (!what->least)
        measure(what, 0, seconds, (int)repetitions);
    else
        for (long length = what->least; length <= most; length *= 2)
            measure(what, (int)length, seconds, (int)repetitions);
    free(out);
    free(in);
    return MPI_Finalize();
}
