/* A file that all ranks write and read together, by collective calls with a view of its own for
   each rank, and each for itself; with the word "ordered" after its path by a pointer that they
   share, too. */
#include "job.h"
#include <sys/stat.h>

#define BLOCK 1000
#define BLOCKS 40

static MPI_File file;

static int number(int of, int block, int i) { return of * 1000000 + block * BLOCK + i; }

static void open_file(const char *path, int mode) {
    int error = MPI_File_open(MPI_COMM_WORLD, path, mode, MPI_INFO_NULL, &file), length;
    char said[MPI_MAX_ERROR_STRING];
    MPI_Error_string(error, said, &length);
    CHECK(error == MPI_SUCCESS, "%s: %s", path, said);
    MPI_File_set_errhandler(file, MPI_ERRORS_ARE_FATAL);
}

/* view OF: only the blocks of one rank, of which each rank has one after another */
static void view(int of) {
    MPI_Datatype blocks, every;
    MPI_Type_contiguous(BLOCK, MPI_INT, &blocks);
    MPI_Type_create_resized(blocks, 0, (MPI_Aint)(sizeof(int) * BLOCK * (size_t)size), &every);
    MPI_Type_commit(&every);
    MPI_File_set_view(file, (MPI_Offset)(sizeof(int) * BLOCK * (size_t)of), MPI_INT, every,
                      "native", MPI_INFO_NULL);
    MPI_Type_free(&every);
    MPI_Type_free(&blocks);
}

static void check_blocks(const int *numbers, int of) {
    for (int i = 0; i < BLOCK * BLOCKS; i++)
        CHECK(numbers[i] == number(of, i / BLOCK, i % BLOCK), "number %d of rank %d is %d", i, of,
              numbers[i]);
}

/* In the order of ranks, at a place that they share. */
static void ordered(const char *path) {
    int next = (rank + 1) % size, one[2];
    open_file(path, MPI_MODE_RDWR);
    MPI_File_set_size(file, 0);
    for (int round = 0; round < 5; round++)
        MPI_File_write_ordered(file, (int[]){rank, round}, 2, MPI_INT, MPI_STATUS_IGNORE);
    MPI_File_sync(file);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_sync(file);
    for (int round = 0; round < 5; round++) {
        MPI_File_read_at(file, (MPI_Offset)sizeof one * (round * size + next), one, 2, MPI_INT,
                         MPI_STATUS_IGNORE);
        CHECK(one[0] == next && one[1] == round, "rank %d, round %d instead of %d, %d", one[0],
              one[1], next, round);
    }
    MPI_File_close(&file);
}

int main(int argc, char **argv) {
    MPI_Offset length;
    begin(&argc, &argv);
    CHECK(argc > 1, "usage: files PATH [ordered]");
    /* Machines of root's are other users to the host, each of them. */
    umask(0);
    int *numbers = (int *)room(sizeof(int) * BLOCK * BLOCKS), next = (rank + 1) % size;
    for (int i = 0; i < BLOCK * BLOCKS; i++)
        numbers[i] = number(rank, i / BLOCK, i % BLOCK);
    open_file(argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR);
    view(rank);
    MPI_File_write_all(file, numbers, BLOCK * BLOCKS, MPI_INT, MPI_STATUS_IGNORE);
    MPI_File_close(&file);

    open_file(argv[1], MPI_MODE_RDONLY);
    MPI_File_get_size(file, &length);
    CHECK(length == (MPI_Offset)sizeof(int) * BLOCK * BLOCKS * size, "%lld bytes",
          (long long)length);
    view(next);
    memset(numbers, 0, sizeof(int) * BLOCK * BLOCKS);
    MPI_File_read_all(file, numbers, BLOCK * BLOCKS, MPI_INT, MPI_STATUS_IGNORE);
    check_blocks(numbers, next);
    view(rank);
    memset(numbers, 0, sizeof(int) * BLOCK * BLOCKS);
    MPI_File_read(file, numbers, BLOCK * BLOCKS, MPI_INT, MPI_STATUS_IGNORE);
    check_blocks(numbers, rank);
    MPI_File_close(&file);

    if (argc > 2)
        ordered(argv[1]);
    free(numbers);
    return done("files");
}
