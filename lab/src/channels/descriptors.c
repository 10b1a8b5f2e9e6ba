/* What the kernel passes on by descriptors that processes inherit: POSIX queues, pipes, sockets. */
#define _GNU_SOURCE
#include "../bench.h"
#include "libc.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/vm_sockets.h>
#include <mqueue.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

/* By inbox. */
static int entrance[PROCESSES], outlet[PROCESSES];
static int mine;

static void open_inbox(int me) { mine = me; }

static void send_bytes(int to, const void *message, size_t size) {
    const char *text = message;
    for (size_t sent = 0; sent < size;) {
        ssize_t went = write(entrance[to], text + sent, size - sent);
        if (went < 0 && errno != EINTR)
            die("write");
        sent += went < 0 ? 0 : (size_t)went;
    }
}

static void receive_bytes(void *message, size_t size) {
    char *text = message;
    for (size_t have = 0; have < size;) {
        ssize_t got = read(outlet[mine], text + have, size - have);
        if (got == 0 || (got < 0 && errno != EINTR))
            die("read");
        have += got < 0 ? 0 : (size_t)got;
    }
}

static size_t make_pipes(int processes, size_t size) {
    for (int i = 0; i < processes; i++) {
        int ends[2];
        if (pipe(ends) != 0)
            die("pipe");
        outlet[i] = ends[0];
        entrance[i] = ends[1];
    }
    return size;
}

const struct channel pipes = {
    .name = "pipe",
    .make = make_pipes,
    .open = open_inbox,
    .send = send_bytes,
    .receive = receive_bytes,
    .close = nothing,
    .remove = nothing,
};

/* Sockets that keep messages apart; all senders have the same end. */
static size_t make_unix_sockets(int processes, size_t size) {
    enum { MOST = 64 << 10 }; /* of one message, which must fit the buffer */
    for (int i = 0; i < processes; i++) {
        int ends[2];
        if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) != 0)
            die("socketpair");
        outlet[i] = ends[0];
        entrance[i] = ends[1];
    }
    return size < MOST ? size : MOST;
}

const struct channel unix_sockets = {
    .name = "unix",
    .make = make_unix_sockets,
    .open = open_inbox,
    .send = send_bytes,
    .receive = receive_bytes,
    .close = nothing,
    .remove = nothing,
};

/* A connection of this process with itself. */
static void connect_inbox(int i, struct sockaddr *at, socklen_t length) {
    int listener = socket(at->sa_family, SOCK_STREAM, 0);
    entrance[i] = socket(at->sa_family, SOCK_STREAM, 0);
    if (listener < 0 || entrance[i] < 0 || bind(listener, at, length) != 0 ||
        listen(listener, 1) != 0 || getsockname(listener, at, &length) != 0 ||
        connect(entrance[i], at, length) != 0 || (outlet[i] = accept(listener, NULL, NULL)) < 0) {
        if (at->sa_family == AF_VSOCK)
            missing("this kernel has no vsock with itself (module vsock_loopback)");
        die("a connection to this host");
    }
    close(listener);
}

static size_t make_tcp(int processes, size_t size) {
    int on = 1;
    for (int i = 0; i < processes; i++) {
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        connect_inbox(i, (struct sockaddr *)&at, sizeof at);
        if (setsockopt(entrance[i], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0)
            die("TCP_NODELAY");
    }
    return size;
}

static size_t make_vsock(int processes, size_t size) {
    for (int i = 0; i < processes; i++) {
        struct sockaddr_vm at = {
            .svm_family = AF_VSOCK, .svm_cid = VMADDR_CID_LOCAL, .svm_port = VMADDR_PORT_ANY};
        connect_inbox(i, (struct sockaddr *)&at, sizeof at);
    }
    return size;
}

const struct channel tcp = {
    .name = "tcp",
    .make = make_tcp,
    .open = open_inbox,
    .send = send_bytes,
    .receive = receive_bytes,
    .close = nothing,
    .remove = nothing,
    .one_sender = 1,
};

const struct channel vsock = {
    .name = "vsock",
    .make = make_vsock,
    .open = open_inbox,
    .send = send_bytes,
    .receive = receive_bytes,
    .close = nothing,
    .remove = nothing,
    .one_sender = 1,
};

/* As many messages, and as large ones, as the kernel allows an ordinary user. */
static size_t make_posix_queues(int processes, size_t size) {
    enum { MOST = 8192, MESSAGES = 10 };
    struct mq_attr attributes = {.mq_maxmsg = MESSAGES, .mq_msgsize = size < MOST ? size : MOST};
    for (int i = 0; i < processes; i++) {
        char name[64];
        snprintf(name, sizeof name, "/channel-%d-%d", (int)getpid(), i);
        int queue = mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0600, &attributes);
        if (queue < 0 || mq_unlink(name) != 0)
            die("mq_open");
        entrance[i] = outlet[i] = queue;
    }
    return (size_t)attributes.mq_msgsize;
}

static void send_to_posix_queue(int to, const void *message, size_t size) {
    while (mq_send(entrance[to], message, size, 0) != 0)
        if (errno != EINTR)
            die("mq_send");
}

static void receive_from_posix_queue(void *message, size_t size) {
    ssize_t got;
    while ((got = mq_receive(outlet[mine], message, size, NULL)) < 0 && errno == EINTR)
        ;
    if (got != (ssize_t)size)
        die("mq_receive");
}

const struct channel posix_queues = {
    .name = "mqueue",
    .make = make_posix_queues,
    .open = open_inbox,
    .send = send_to_posix_queue,
    .receive = receive_from_posix_queue,
    .close = nothing,
    .remove = nothing,
};
