/* Ranks that meet by MPI_Comm_accept and MPI_Comm_connect:

     connect inside       two halves of a job
     connect named NAME   the same, with a port that is published under a name
     connect accept       a job that prints the port on which it waits for another
     connect to PORT      the other */
#include "job.h"

/* together MEETING: what both sides do with each other, all ranks with all of the other side */
static void together(MPI_Comm meeting, int first) {
    enum { LENGTH = 70000 };
    int others, here, peers, me;
    MPI_Comm all;
    MPI_Comm_rank(meeting, &here);
    MPI_Comm_remote_size(meeting, &others);
    unsigned char *text = room(LENGTH);
    for (int peer = 0; peer < others; peer++)
        for (int turn = 0; turn < 2; turn++)
            if (turn == first)
                MPI_Send(fill(text, LENGTH, (unsigned)(100 * first + here)), LENGTH, MPI_BYTE, peer,
                         5, meeting);
            else {
                MPI_Recv(text, LENGTH, MPI_BYTE, peer, 5, meeting, MPI_STATUS_IGNORE);
                check_text(text, LENGTH, (unsigned)(100 * !first + peer));
            }
    free(text);
    MPI_Intercomm_merge(meeting, !first, &all);
    MPI_Comm_size(all, &peers);
    MPI_Comm_rank(all, &me);
    long sum, mine = me + 1;
    MPI_Allreduce(&mine, &sum, 1, MPI_LONG, MPI_SUM, all);
    CHECK(sum == (long)peers * (peers + 1) / 2, "%d ranks have a sum of %ld", peers, sum);
    int on = hosts(all);
    if (me == 0)
        printf("connect: %d ranks on %d hosts\n", peers, on);
    MPI_Comm_free(&all);
    MPI_Comm_disconnect(&meeting);
}

static void wait_on(const char *port, MPI_Comm side) {
    MPI_Comm meeting;
    MPI_Comm_accept(port, MPI_INFO_NULL, 0, side, &meeting);
    together(meeting, 1);
}

static void call(const char *port, MPI_Comm side) {
    MPI_Comm meeting;
    MPI_Comm_connect(port, MPI_INFO_NULL, 0, side, &meeting);
    together(meeting, 0);
}

/* Even ranks wait, odd ones call: on all hosts there are both. */
static void halves(const char *name) {
    char port[MPI_MAX_PORT_NAME] = "";
    MPI_Comm side;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &side);
    if (rank == 0) {
        MPI_Open_port(MPI_INFO_NULL, port);
        if (name)
            MPI_Publish_name(name, MPI_INFO_NULL, port);
        MPI_Send(port, sizeof port, MPI_CHAR, 1, 0, MPI_COMM_WORLD);
    } else if (rank == 1) {
        MPI_Recv(port, sizeof port, MPI_CHAR, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (name) {
            memset(port, 0, sizeof port);
            MPI_Lookup_name(name, MPI_INFO_NULL, port);
        }
    }
    if (rank % 2)
        call(port, side);
    else
        wait_on(port, side);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        if (name)
            MPI_Unpublish_name(name, MPI_INFO_NULL, port);
        MPI_Close_port(port);
    }
    MPI_Comm_free(&side);
}

int main(int argc, char **argv) {
    char port[MPI_MAX_PORT_NAME] = "";
    begin(&argc, &argv);
    CHECK(argc > 1, "usage: connect inside | named NAME | accept | to PORT");
    if (!strcmp(argv[1], "inside") || !strcmp(argv[1], "named"))
        halves(argv[2]);
    else if (!strcmp(argv[1], "to")) {
        CHECK(argc == 3, "which port?");
        call(argv[2], MPI_COMM_WORLD);
    } else {
        if (rank == 0) {
            MPI_Open_port(MPI_INFO_NULL, port);
            printf("port: %s\n", port);
            fflush(stdout);
        }
        wait_on(port, MPI_COMM_WORLD);
        if (rank == 0)
            MPI_Close_port(port);
    }
    MPI_Finalize();
    return 0;
}
