/* What programs ask of an MPI beside messages, collectives and windows. The arguments name what is
   tried: hosts, grid, types, flood, count, threads, rest. */
#define _GNU_SOURCE
#include "job.h"
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

static int next, previous;

/* The ranks that MPI_COMM_TYPE_SHARED names are those of this host, all of them and no other, and a
   window that they share is one memory. */
static void of_one_host(void) {
    enum { EACH = 1000 };
    char mine[MPI_MAX_PROCESSOR_NAME] = "";
    int length, here = 0, in_host, host_size;
    MPI_Comm host;
    MPI_Get_processor_name(mine, &length);
    char(*all)[MPI_MAX_PROCESSOR_NAME] = calloc((size_t)size, sizeof mine);
    CHECK(all, "no memory");
    MPI_Allgather(mine, sizeof mine, MPI_CHAR, all, sizeof mine, MPI_CHAR, MPI_COMM_WORLD);
    for (int i = 0; i < size; i++)
        here += !strcmp(all[i], mine);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &host);
    MPI_Comm_size(host, &host_size);
    MPI_Comm_rank(host, &in_host);
    CHECK(host_size == here, "%d ranks share memory, and %d are on %s", host_size, here, mine);
    MPI_Allgather(mine, sizeof mine, MPI_CHAR, all, sizeof mine, MPI_CHAR, host);
    for (int i = 0; i < host_size; i++)
        CHECK(!strcmp(all[i], mine), "a rank on %s shares memory with one on %s", all[i], mine);
    free(all);

    long *part;
    MPI_Win window;
    MPI_Win_allocate_shared(EACH * sizeof *part, sizeof *part, MPI_INFO_NULL, host, &part, &window);
    MPI_Win_lock_all(MPI_MODE_NOCHECK, window);
    for (int i = 0; i < EACH; i++)
        part[i] = in_host * EACH + i;
    MPI_Win_sync(window);
    MPI_Barrier(host);
    MPI_Win_sync(window);
    for (int peer = 0; peer < host_size; peer++) {
        MPI_Aint bytes;
        int unit;
        long *theirs;
        MPI_Win_shared_query(window, peer, &bytes, &unit, &theirs);
        for (int i = 0; i < EACH; i++)
            CHECK(theirs[i] == peer * EACH + i, "number %d of rank %d is %ld", i, peer, theirs[i]);
    }
    MPI_Win_unlock_all(window);
    MPI_Win_free(&window);
    MPI_Comm_free(&host);
}

/* A grid whose ranks know their neighbours: each gets what its neighbour's place says. */
static void grid(void) {
    enum { DIMS = 2 };
    int dims[DIMS] = {0}, periods[DIMS] = {1, 0}, place[DIMS], me;
    int out[2 * DIMS], in[2 * DIMS];
    MPI_Comm cart, row;
    MPI_Dims_create(size, DIMS, dims);
    MPI_Cart_create(MPI_COMM_WORLD, DIMS, dims, periods, 1, &cart);
    MPI_Comm_rank(cart, &me);
    MPI_Cart_coords(cart, me, DIMS, place);
    for (int i = 0; i < 2 * DIMS; i++)
        out[i] = me * 10 + i, in[i] = -1;
    MPI_Neighbor_alltoall(out, 1, MPI_INT, in, 1, MPI_INT, cart);
    for (int dim = 0; dim < DIMS; dim++) {
        int below, above, got = -1;
        MPI_Cart_shift(cart, dim, 1, &below, &above);
        CHECK(periods[dim] || (below == MPI_PROC_NULL) == (place[dim] == 0), "no edge");
        MPI_Sendrecv(&me, 1, MPI_INT, above, dim, &got, 1, MPI_INT, below, dim, cart,
                     MPI_STATUS_IGNORE);
        CHECK(got == (below == MPI_PROC_NULL ? -1 : below), "%d instead of %d", got, below);
        /* With two ranks in a circle both neighbours are one, and which of its two comes first is
           not said. */
        if (dims[dim] > 2 || !periods[dim]) {
            int low = below == MPI_PROC_NULL ? -1 : below * 10 + 2 * dim + 1;
            int high = above == MPI_PROC_NULL ? -1 : above * 10 + 2 * dim;
            CHECK(in[2 * dim] == low, "%d from below instead of %d", in[2 * dim], low);
            CHECK(in[2 * dim + 1] == high, "%d from above instead of %d", in[2 * dim + 1], high);
        }
    }
    int kept[DIMS] = {0, 1}, sum;
    MPI_Cart_sub(cart, kept, &row);
    MPI_Allreduce(&place[1], &sum, 1, MPI_INT, MPI_SUM, row);
    CHECK(sum == dims[1] * (dims[1] - 1) / 2, "the places of a row sum up to %d", sum);
    MPI_Comm_free(&row);
    MPI_Comm_free(&cart);
}

/* exchange TYPE EXTENT: one of a type to the next rank, whose gaps stay as they were */
static void exchange(MPI_Datatype type, size_t extent) {
    unsigned char *out = fill(room(extent), extent, (unsigned)rank);
    unsigned char *in = fill(room(extent), extent, 77u);
    unsigned char *expected = fill(room(extent), extent, 77u);
    unsigned char *theirs = fill(room(extent), extent, (unsigned)previous);
    int bytes, at = 0, packed;
    MPI_Type_commit(&type);
    MPI_Type_size(type, &bytes);
    MPI_Pack_size(1, type, MPI_COMM_WORLD, &packed);
    unsigned char *pack = room((size_t)packed);
    MPI_Sendrecv(out, 1, type, next, 1, in, 1, type, previous, 1, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    MPI_Pack(theirs, 1, type, pack, packed, &at, MPI_COMM_WORLD);
    at = 0;
    MPI_Unpack(pack, packed, &at, expected, 1, type, MPI_COMM_WORLD);
    CHECK(!memcmp(in, expected, extent), "a type of %d bytes in %zu has arrived wrong", bytes,
          extent);
    CHECK((size_t)bytes < extent, "a type without gaps");
    free(out), free(in), free(expected), free(theirs), free(pack);
    MPI_Type_free(&type);
}

/* Types that are not contiguous, in both protocols. */
static void types(void) {
    for (int scale = 1; scale <= 1000; scale *= 1000) {
        MPI_Datatype type, part;
        int lengths[] = {1, 3, 2}, places[] = {2, 9, 40};
        MPI_Aint at[] = {0, 8, 40};
        MPI_Datatype parts[] = {MPI_CHAR, MPI_DOUBLE, MPI_SHORT};
        MPI_Type_create_struct(3, lengths, at, parts, &type);
        MPI_Type_create_resized(type, 0, 64, &part);
        MPI_Type_free(&type);
        MPI_Type_contiguous(20 * scale, part, &type);
        MPI_Type_free(&part);
        exchange(type, (size_t)64 * 20 * scale);

        MPI_Type_indexed(3, lengths, places, MPI_INT, &part);
        MPI_Type_create_hvector(10 * scale, 1, 200, part, &type);
        MPI_Type_free(&part);
        exchange(type, (size_t)200 * 10 * scale);

        int whole[] = {6, 20 * scale, 9}, some[] = {3, 10 * scale, 4}, first[] = {2, 5, 1};
        MPI_Type_create_subarray(3, whole, some, first, MPI_ORDER_C, MPI_INT, &type);
        exchange(type, sizeof(int) * 6 * 20 * scale * 9);
    }
}

/* Small messages that nobody has asked for, until the last one of another kind has come. */
static void flood(void) {
    enum { MESSAGES = 20000, LENGTH = 200 };
    unsigned char text[LENGTH];
    if (rank != 0) {
        for (int i = 0; i < MESSAGES; i++)
            MPI_Send(fill(text, (size_t)i % LENGTH, (unsigned)(rank + i)), i % LENGTH, MPI_BYTE, 0,
                     1, MPI_COMM_WORLD);
        MPI_Send(NULL, 0, MPI_BYTE, 0, 2, MPI_COMM_WORLD);
    } else {
        int *from = calloc((size_t)size, sizeof *from);
        CHECK(from, "no memory");
        for (int peer = 1; peer < size; peer++)
            MPI_Recv(NULL, 0, MPI_BYTE, peer, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int all = 0; all < MESSAGES * (size - 1); all++) {
            MPI_Status status;
            MPI_Probe(MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, &status);
            int peer = status.MPI_SOURCE, i = from[peer]++;
            MPI_Recv(text, LENGTH, MPI_BYTE, peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            check_text(text, (size_t)i % LENGTH, (unsigned)(peer + i));
        }
        free(from);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

/* endless BYTES: memory that is one megabyte over and over, so that it takes no more */
static unsigned char *endless(size_t bytes) {
    enum { PART = 1 << 20 };
    int file = memfd_create("endless", 0);
    CHECK(file >= 0 && !ftruncate(file, PART), "no memory");
    unsigned char *all = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(all != MAP_FAILED, "no room");
    for (size_t at = 0; at < bytes; at += PART)
        CHECK(mmap(all + at, PART, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) !=
                  MAP_FAILED,
              "no memory at %zu", at);
    close(file);
    return all;
}

/* More than 2 GiB in one message, and more than an int counts. */
static void count(void) {
    enum { PART = 1 << 20, PARTS = 2049 };
    size_t bytes = (size_t)PART * PARTS;
    MPI_Datatype part;
    MPI_Status status;
    MPI_Count got;
    unsigned char *text = endless(bytes);
    MPI_Type_contiguous(PART, MPI_BYTE, &part);
    MPI_Type_commit(&part);
    if (rank == 0) {
        fill(text, PART, 5u);
        for (int peer = 1; peer < size; peer++)
            MPI_Send(text, PARTS, part, peer, 1, MPI_COMM_WORLD);
    } else {
        MPI_Recv(text, PARTS, part, 0, 1, MPI_COMM_WORLD, &status);
        MPI_Get_elements_x(&status, part, &got);
        CHECK(got == (MPI_Count)bytes, "%lld bytes instead of %zu", (long long)got, bytes);
        check_text(text, PART, 5u);
    }
    MPI_Barrier(MPI_COMM_WORLD);
#if MPI_VERSION >= 4
    if (rank == 0)
        for (int peer = 1; peer < size; peer++)
            MPI_Send_c(fill(text, PART, 6u), (MPI_Count)bytes, MPI_BYTE, peer, 2, MPI_COMM_WORLD);
    else {
        MPI_Recv_c(text, (MPI_Count)bytes, MPI_BYTE, 0, 2, MPI_COMM_WORLD, &status);
        MPI_Get_count_c(&status, MPI_BYTE, &got);
        CHECK(got == (MPI_Count)bytes, "%lld bytes instead of %zu", (long long)got, bytes);
        check_text(text, PART, 6u);
    }
    MPI_Barrier(MPI_COMM_WORLD);
#endif
    MPI_Type_free(&part);
    munmap(text, bytes);
}

/* A thread's messages go to the next rank's thread of the same number, all at once. */
static void *thread(void *number) {
    enum { ROUNDS = 60, MOST = 60000 };
    int tag = 100 + (int)(size_t)number;
    unsigned char *out = room(MOST), *in = room(MOST);
    for (int round = 0; round < ROUNDS; round++) {
        size_t length = (size_t)(round * 7919 + tag * 104729) % (round % 4 ? 300 : MOST);
        MPI_Request open[2];
        MPI_Status status[2];
        int got;
        MPI_Irecv(in, MOST, MPI_BYTE, previous, tag, MPI_COMM_WORLD, &open[0]);
        MPI_Isend(fill(out, length, (unsigned)(rank * 1000 + tag + round)), (int)length, MPI_BYTE,
                  next, tag, MPI_COMM_WORLD, &open[1]);
        MPI_Waitall(2, open, status);
        MPI_Get_count(&status[0], MPI_BYTE, &got);
        CHECK(got == (int)length, "thread %d got %d bytes instead of %zu", tag, got, length);
        check_text(in, length, (unsigned)(previous * 1000 + tag + round));
    }
    free(out);
    free(in);
    return NULL;
}

static void threads(void) {
    enum { THREADS = 4 };
    pthread_t all[THREADS];
    int level;
    MPI_Query_thread(&level);
    CHECK(level == MPI_THREAD_MULTIPLE, "level %d of threads instead of %d", level,
          MPI_THREAD_MULTIPLE);
    for (size_t i = 0; i < THREADS; i++)
        CHECK(!pthread_create(&all[i], NULL, thread, (void *)i), "no thread");
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(all[i], NULL);
}

static double seconds(struct timeval time) {
    return (double)time.tv_sec + 1e-6 * (double)time.tv_usec;
}

/* Ranks that wait for the first one use no processor meanwhile, if they are told that these are
   short (VSHMEM_UCX_YIELD=sleep). */
static void rest(void) {
    enum { LATE = 3 };
    struct rusage before, after;
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        sleep(LATE);
    getrusage(RUSAGE_SELF, &before);
    MPI_Barrier(MPI_COMM_WORLD);
    getrusage(RUSAGE_SELF, &after);
    double used = seconds(after.ru_utime) - seconds(before.ru_utime) + seconds(after.ru_stime) -
                  seconds(before.ru_stime);
    CHECK(used < LATE / 2., "it has computed for %.2f s of %d in which it waited", used, LATE);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)(void);
    } features[] = {{"hosts", of_one_host}, {"grid", grid},   {"types", types},
                    {"flood", flood},       {"count", count}, {"threads", threads},
                    {"rest", rest}};
    int level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    next = (rank + 1) % size;
    previous = (rank + size - 1) % size;
    for (int i = 1; i < argc; i++) {
        size_t at = 0, known = sizeof features / sizeof *features;
        while (at < known && strcmp(features[at].name, argv[i]))
            at++;
        CHECK(at < known, "there is no feature %s", argv[i]);
        features[at].run();
    }
    CHECK(argc > 1, "usage: features hosts|grid|types|flood|count|threads|rest...");
    return done("features");
}
