/* Ping-pong over TCP and UDP: what the network between two machines costs.
 *
 *   netpong -l [-p PORT]
 *     answers, until a client says that it is done
 *   netpong -c HOST [-p PORT] [-t SECONDS] PROTOCOL SIZE...
 *     measures; PROTOCOL is tcp or udp
 *
 * The client prints what pingpong prints: "PROTOCOL SIZE NANOSECONDS PIECES P50 P99 P99.9". A
 * payload that no datagram holds goes in pieces. A datagram that gets lost makes the client send
 * that round again after a while.
 */
#include "bench.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { LARGEST = 1 << 20, PIECE = 32768, MOST_PIECES = LARGEST / PIECE };

/* The first bytes of every datagram; the smallest payload is just this. */
struct head {
    uint32_t round;
    uint16_t piece, pieces;
};

static char buffer[LARGEST];

static int open_socket(int type) {
    int fd = socket(AF_INET, type, 0);
    int on = 1, room = 4 << 20;
    if (fd < 0)
        die("socket");
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    return fd;
}

static void no_delay(int fd) {
    int on = 1;
    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0)
        die("TCP_NODELAY");
}

/* 1: all of it; 0: the peer has closed. */
static int read_all(int fd, char *at, size_t size) {
    while (size > 0) {
        ssize_t got = recv(fd, at, size, MSG_WAITALL);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            die("recv");
        if (got == 0)
            return 0;
        at += got;
        size -= (size_t)got;
    }
    return 1;
}

static void write_all(int fd, const char *at, size_t size) {
    while (size > 0) {
        ssize_t put = send(fd, at, size, MSG_NOSIGNAL);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            die("send");
        at += put;
        size -= (size_t)put;
    }
}

/* ---- datagrams ---- */

static unsigned pieces_of(size_t size) { return (unsigned)((size + PIECE - 1) / PIECE); }

/* To `to`, or to the peer that the socket is connected to. */
static void send_pieces(int fd, uint32_t round, size_t size, const struct sockaddr_in *to) {
    struct head head = {.round = round, .pieces = (uint16_t)pieces_of(size)};
    socklen_t length = to == NULL ? 0 : sizeof *to;
    for (head.piece = 0; head.piece < head.pieces; head.piece++) {
        size_t at = (size_t)head.piece * PIECE, left = size - at;
        memcpy(buffer + at, &head, sizeof head);
        /* A full buffer or an unreachable peer is a lost datagram: the round is sent again. */
        (void)sendto(fd, buffer + at, left < PIECE ? left : PIECE, 0, (const struct sockaddr *)to,
                     length);
    }
}

/* Which pieces of which round have come. */
struct gathering {
    uint32_t round;
    uint32_t have; /* a bit for each piece */
};

/* Takes one datagram in; the size of the whole payload if that completes it, else 0. */
static size_t gather(struct gathering *g, const char *datagram, size_t length) {
    static size_t size;
    struct head head;
    if (length < sizeof head)
        return 0;
    memcpy(&head, datagram, sizeof head);
    if (head.pieces == 0 || head.pieces > MOST_PIECES || head.piece >= head.pieces)
        return 0;
    if (g->have == 0 || head.round != g->round)
        *g = (struct gathering){.round = head.round};
    g->have |= 1u << head.piece;
    if (head.piece == head.pieces - 1)
        size = (size_t)head.piece * PIECE + length;
    if (g->have != (head.pieces == 32 ? ~0u : (1u << head.pieces) - 1))
        return 0;
    g->have = 0;
    return size;
}

/* ---- the side that answers ---- */

static int listen_on(unsigned port, int type) {
    int fd = open_socket(type);
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    if (bind(fd, (struct sockaddr *)&any, sizeof any) != 0)
        die("bind");
    if (type == SOCK_STREAM && listen(fd, 4) != 0)
        die("listen");
    return fd;
}

/* One client: a size, then rounds of that size. Size 0: the end of everything. */
static int serve_stream(int listener) {
    int fd = accept(listener, NULL, NULL);
    uint32_t size;
    if (fd < 0)
        die("accept");
    no_delay(fd);
    if (!read_all(fd, (char *)&size, sizeof size) || size > LARGEST)
        size = 1; /* not a client of ours; keep on serving */
    else
        while (size > 0 && read_all(fd, buffer, size))
            write_all(fd, buffer, size);
    close(fd);
    return size > 0;
}

static void serve_datagram(int fd) {
    static struct gathering gathering;
    static char datagram[PIECE];
    struct sockaddr_in from;
    socklen_t length = sizeof from;
    ssize_t got = recvfrom(fd, datagram, sizeof datagram, 0, (struct sockaddr *)&from, &length);
    size_t size = got < 0 ? 0 : gather(&gathering, datagram, (size_t)got);
    if (size > 0)
        send_pieces(fd, gathering.round, size, &from);
}

static void serve(unsigned port) {
    struct pollfd fds[] = {{.fd = listen_on(port, SOCK_STREAM), .events = POLLIN},
                           {.fd = listen_on(port, SOCK_DGRAM), .events = POLLIN}};
    for (int more = 1; more;) {
        if (poll(fds, 2, -1) < 0 && errno != EINTR)
            die("poll");
        if (fds[1].revents & POLLIN)
            serve_datagram(fds[1].fd);
        if (fds[0].revents & POLLIN)
            more = serve_stream(fds[0].fd);
    }
}

/* ---- the side that measures ---- */

struct client {
    int fd;
    size_t size;
    uint32_t round;
};

static void stream_rounds(void *arg, uint64_t n) {
    const struct client *c = arg;
    for (uint64_t i = 0; i < n; i++) {
        write_all(c->fd, buffer, c->size);
        if (!read_all(c->fd, buffer, c->size))
            die("the answering side has closed");
    }
}

static void datagram_round(struct client *c) {
    static char datagram[PIECE];
    struct gathering gathering = {0};
    c->round++;
    for (int attempt = 0; attempt < 50; attempt++) {
        send_pieces(c->fd, c->round, c->size, NULL);
        for (;;) {
            ssize_t got = recv(c->fd, datagram, sizeof datagram, 0);
            if (got < 0)
                break; /* nothing came in time */
            if (gather(&gathering, datagram, (size_t)got) > 0 && gathering.round == c->round)
                return;
        }
    }
    fprintf(stderr, "netpong: no answer by UDP in ten seconds\n");
    exit(1);
}

static void datagram_rounds(void *arg, uint64_t n) {
    for (uint64_t i = 0; i < n; i++)
        datagram_round(arg);
}

static void connect_to(int fd, const char *host, unsigned port) {
    struct addrinfo hints = {.ai_family = AF_INET}, *found;
    char service[16];
    snprintf(service, sizeof service, "%u", port);
    int error = getaddrinfo(host, service, &hints, &found);
    if (error != 0) {
        fprintf(stderr, "netpong: %s: %s\n", host, gai_strerror(error));
        exit(1);
    }
    for (int attempt = 0; connect(fd, found->ai_addr, found->ai_addrlen) != 0; attempt++) {
        if (attempt == 200) /* the other side may start later */
            die("connect");
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    }
    freeaddrinfo(found);
}

static int stream_to(const char *host, unsigned port, uint32_t size) {
    int fd = open_socket(SOCK_STREAM);
    connect_to(fd, host, port);
    no_delay(fd);
    write_all(fd, (char *)&size, sizeof size);
    return fd;
}

static void measure(const char *host, unsigned port, const char *protocol, size_t size) {
    struct client c = {.size = size};
    int datagrams = strcmp(protocol, "udp") == 0;
    if (size < sizeof(struct head) || size > LARGEST) {
        fprintf(stderr, "netpong: a size is %zu to %d bytes\n", sizeof(struct head), LARGEST);
        exit(2);
    }
    if (datagrams) {
        struct timeval patience = {.tv_usec = 200000};
        c.fd = open_socket(SOCK_DGRAM);
        connect_to(c.fd, host, port);
        setsockopt(c.fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    } else {
        c.fd = stream_to(host, port, (uint32_t)size);
    }
    batch_fn rounds = datagrams ? datagram_rounds : stream_rounds;
    double ns = median_ns(rounds, &c);
    printf("%s %zu %.0f %u", protocol, size, ns, datagrams ? pieces_of(size) : 1);
    print_tail(rounds, &c);
    printf("\n");
    fflush(stdout);
    close(c.fd);
}

int main(int argc, char **argv) {
    const char *host = NULL;
    unsigned port = 7117;
    int option, listens = 0;
    while ((option = getopt(argc, argv, "lc:p:t:")) != -1) {
        if (option == 'l')
            listens = 1;
        else if (option == 'c')
            host = optarg;
        else if (option == 'p')
            port = (unsigned)atoi(optarg);
        else if (option == 't')
            bench_seconds = atof(optarg);
        else
            return 2;
    }
    if (listens) {
        serve(port);
        return 0;
    }
    if (host == NULL || (argc - optind) % 2 != 0) {
        fprintf(stderr, "netpong: -l, or -c HOST and pairs of PROTOCOL SIZE are needed\n");
        return 2;
    }
    /* The server listens on both once it takes this; size 1 is a connection without a round. */
    close(stream_to(host, port, 1));
    for (int i = optind; i < argc; i += 2)
        measure(host, port, argv[i], strtoul(argv[i + 1], NULL, 10));
    close(stream_to(host, port, 0));
    return 0;
}
