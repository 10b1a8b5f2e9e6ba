/* Ping-pong over libxenvchan: what Xen's own library between two domains takes.
 *
 *   vchanpong [-p] -l DOMAIN SIZE
 *     serves a vchan for a domain, and sends each message of SIZE bytes back until that closes
 *   vchanpong [-p] -c DOMAIN [-t SECONDS] SIZE
 *     measures, as the client of the domain that serves
 *
 * The client prints what pingpong prints: "METHOD SIZE NANOSECONDS PIECES P50 P99 P99.9". METHOD is
 * vchan, whose sides sleep in libxenvchan until there is a message, or with -p vchan-polled, whose
 * sides ask it again and again; both processes need the same. Each message is copied out of the
 * sender's memory and into the receiver's.
 */
#define _GNU_SOURCE
#include "bench.h"

#include <libxenvchan.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { LARGEST = 1 << 20, ATTEMPTS = 1200 };

struct channel {
    struct libxenvchan *vchan;
    char *buffer;
    size_t size;
    unsigned number; /* of the round, of which a message has the last byte at both ends */
    int polled;
};

/* 0: the peer has closed. */
static int receive(struct channel *c) {
    int got;
    while ((got = libxenvchan_recv(c->vchan, c->buffer, c->size)) == 0)
        __builtin_ia32_pause();
    return got > 0;
}

/* 0: the peer has closed. */
static int transmit(struct channel *c) {
    int put;
    while ((put = libxenvchan_send(c->vchan, c->buffer, c->size)) == 0)
        __builtin_ia32_pause();
    return put > 0;
}

static void play(void *arg, uint64_t rounds) {
    struct channel *c = arg;
    for (uint64_t i = 0; i < rounds; i++) {
        char stamp = (char)++c->number;
        c->buffer[0] = c->buffer[c->size - 1] = stamp;
        if (!transmit(c) || !receive(c)) {
            fprintf(stderr, "vchanpong: the answering side has closed\n");
            exit(1);
        }
        if (c->buffer[0] != stamp || c->buffer[c->size - 1] != stamp) {
            fprintf(stderr, "vchanpong: round %u brought another round's message\n", c->number);
            exit(1);
        }
    }
}

static void answer(struct channel *c) {
    while (receive(c) && transmit(c))
        ;
}

/* Each way has a ring for a message, as large as the library makes one at least. */
static struct libxenvchan *serve(int domain, size_t size) {
    return libxenvchan_server_init(NULL, domain, "data/vchanpong", size, size);
}

/* The other side may start later. */
static struct libxenvchan *connect_to(int domain) {
    char path[64];
    snprintf(path, sizeof path, "/local/domain/%d/data/vchanpong", domain);
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
        struct libxenvchan *found = libxenvchan_client_init(NULL, domain, path);
        if (found != NULL)
            return found;
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    }
    return NULL;
}

static void measure(struct channel *c) {
    double ns = median_ns(play, c);
    printf("%s %zu %.0f 1", c->polled ? "vchan-polled" : "vchan", c->size, ns);
    print_tail(play, c);
    printf("\n");
}

int main(int argc, char **argv) {
    struct channel c = {0};
    int option, server = -1, client = -1;
    while ((option = getopt(argc, argv, "c:l:pt:")) != -1) {
        if (option == 'c')
            client = atoi(optarg);
        else if (option == 'l')
            server = atoi(optarg);
        else if (option == 'p')
            c.polled = 1;
        else if (option == 't')
            bench_seconds = atof(optarg);
        else
            return 2;
    }
    c.size = optind + 1 == argc ? strtoul(argv[optind], NULL, 10) : 0;
    if ((server < 0) == (client < 0) || c.size < 1 || c.size > LARGEST) {
        fprintf(stderr, "vchanpong: -l or -c with a domain, and a size up to %d are needed\n",
                LARGEST);
        return 2;
    }
    c.buffer = calloc(1, c.size);
    if (c.buffer == NULL)
        die("calloc");
    c.vchan = server < 0 ? connect_to(client) : serve(server, c.size);
    if (c.vchan == NULL)
        die("libxenvchan");
    c.vchan->blocking = !c.polled;
    if (server < 0)
        measure(&c);
    else
        answer(&c);
    libxenvchan_close(c.vchan);
    return 0;
}
