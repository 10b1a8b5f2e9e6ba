/* Point to point: messages of 1 B to 4 MiB, or to what the first argument says, each byte checked.
 */
#include "job.h"

#define UNEXPECTED 600

static unsigned text_of(int from, int tag) { return (unsigned)(from * 1000 + tag); }

/* A message of each size, and one byte less and more, to the next rank. */
static void around(size_t most) {
    int next = (rank + 1) % size, previous = (rank + size - 1) % size, tag = 0;
    unsigned char *out = room(most + 1), *in = room(most + 1);
    for (size_t about = 1; about <= most; about *= 4)
        for (size_t length = about - 1; length <= about + 1; length++, tag++) {
            MPI_Status status;
            int got;
            memset(in, 0, length);
            MPI_Sendrecv(fill(out, length, text_of(rank, tag)), (int)length, MPI_BYTE, next, tag,
                         in, (int)most + 1, MPI_BYTE, previous, tag, MPI_COMM_WORLD, &status);
            MPI_Get_count(&status, MPI_BYTE, &got);
            CHECK(got == (int)length, "%d bytes instead of %zu", got, length);
            check_text(in, length, text_of(previous, tag));
        }
    free(out);
    free(in);
}

/* All ranks to all at once, in both protocols; received in another order than sent. */
static void crossing(void) {
    enum { EACH = 6 };
    static const size_t lengths[EACH] = {1, 4000, 9000, 100000, 300000, 64};
    MPI_Request *open = calloc((size_t)size * EACH * 2, sizeof *open);
    unsigned char **texts = calloc((size_t)size * EACH * 2, sizeof *texts);
    CHECK(open && texts, "no memory");
    int n = 0;
    for (int peer = 0; peer < size; peer++)
        for (int k = EACH - 1; k >= 0; k--, n++) {
            texts[n] = room(lengths[k]);
            MPI_Irecv(texts[n], (int)lengths[k], MPI_BYTE, peer, k, MPI_COMM_WORLD, &open[n]);
        }
    for (int peer = 0; peer < size; peer++)
        for (int k = 0; k < EACH; k++, n++) {
            texts[n] = fill(room(lengths[k]), lengths[k], text_of(rank, k));
            MPI_Isend(texts[n], (int)lengths[k], MPI_BYTE, peer, k, MPI_COMM_WORLD, &open[n]);
        }
    MPI_Waitall(n, open, MPI_STATUSES_IGNORE);
    n = 0;
    for (int peer = 0; peer < size; peer++)
        for (int k = EACH - 1; k >= 0; k--, n++)
            check_text(texts[n], lengths[k], text_of(peer, k));
    for (n = 0; n < size * EACH * 2; n++)
        free(texts[n]);
    free(texts);
    free(open);
}

/* Rank 0 takes what comes, from anybody, and sends it back. */
static void from_anybody(void) {
    enum { EACH = 50, LENGTH = 20000 };
    unsigned char *text = room(LENGTH);
    if (rank == 0)
        for (int i = 0; i < EACH * (size - 1); i++) {
            MPI_Status from;
            int got;
            MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &from);
            MPI_Get_count(&from, MPI_BYTE, &got);
            MPI_Recv(text, LENGTH, MPI_BYTE, from.MPI_SOURCE, from.MPI_TAG, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
            check_text(text, (size_t)got, text_of(from.MPI_SOURCE, from.MPI_TAG));
            MPI_Send(text, got, MPI_BYTE, from.MPI_SOURCE, from.MPI_TAG, MPI_COMM_WORLD);
        }
    else
        for (int i = 0; i < EACH; i++) {
            int length = (i * 997) % LENGTH;
            MPI_Send(fill(text, (size_t)length, text_of(rank, i)), length, MPI_BYTE, 0, i,
                     MPI_COMM_WORLD);
            MPI_Recv(text, LENGTH, MPI_BYTE, 0, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            check_text(text, (size_t)length, text_of(rank, i));
        }
    /* What others send next is not for it. */
    MPI_Barrier(MPI_COMM_WORLD);
    free(text);
}

/* Many messages lie there before anybody asks for one, and the last is asked for first. */
static void unexpected(void) {
    enum { LENGTH = 2000 };
    int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    MPI_Request *open = calloc(UNEXPECTED, sizeof *open);
    unsigned char *texts = room((size_t)UNEXPECTED * LENGTH), *in = room(LENGTH);
    CHECK(open, "no memory");
    for (int i = 0; i < UNEXPECTED; i++)
        MPI_Isend(fill(texts + (size_t)i * LENGTH, LENGTH, text_of(rank, i)), LENGTH, MPI_BYTE,
                  next, i, MPI_COMM_WORLD, &open[i]);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = UNEXPECTED - 1; i >= 0; i--) {
        MPI_Recv(in, LENGTH, MPI_BYTE, previous, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        check_text(in, LENGTH, text_of(previous, i));
    }
    MPI_Waitall(UNEXPECTED, open, MPI_STATUSES_IGNORE);
    free(open);
    free(texts);
    free(in);
}

/* A column of a matrix goes out as a type, and arrives as plain numbers; then the other way round.
 */
static void columns(int rows) {
    enum { WIDTH = 7 };
    int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    double *matrix = calloc((size_t)rows * WIDTH, sizeof *matrix);
    double *column = calloc((size_t)rows, sizeof *column);
    CHECK(matrix && column, "no memory");
    MPI_Datatype type;
    MPI_Type_vector(rows, 1, WIDTH, MPI_DOUBLE, &type);
    MPI_Type_commit(&type);
    for (int i = 0; i < rows; i++)
        matrix[i * WIDTH + 3] = rank * 1e6 + i;
    MPI_Sendrecv(matrix + 3, 1, type, next, 0, column, rows, MPI_DOUBLE, previous, 0,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < rows; i++)
        CHECK(column[i] == previous * 1e6 + i, "row %d of %d is wrong", i, rows);
    MPI_Sendrecv(column, rows, MPI_DOUBLE, previous, 1, matrix + 5, 1, type, next, 1,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < rows * WIDTH; i++)
        CHECK(matrix[i] == (i % WIDTH == 3 || i % WIDTH == 5 ? rank * 1e6 + i / WIDTH : 0),
              "number %d of a column that came back is wrong", i);
    MPI_Type_free(&type);
    free(matrix);
    free(column);
}

int main(int argc, char **argv) {
    begin(&argc, &argv);
    around(argc > 1 ? (size_t)atol(argv[1]) : (size_t)4 << 20);
    crossing();
    from_anybody();
    unexpected();
    columns(20);
    columns(20000);
    return done("points");
}
