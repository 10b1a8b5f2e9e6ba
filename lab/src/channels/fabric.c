/* libfabric: messages by its provider shm, between reliable endpoints that need no connection, as
 * fi_shm(7) and its own ping-pong have it. */
#include "channel.h"

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
#define VERSION TEXT(FI_MAJOR_VERSION) "." TEXT(FI_MINOR_VERSION)

static pid_t measures;
static struct fi_info *info;
static struct fid_fabric *fabric;
static struct fid_domain *domain;
static struct fid_ep *endpoint;
static struct fid_av *addresses;
static struct fid_cq *sent, *received;
static fi_addr_t peer[PROCESSES];

static void check(const char *what, ssize_t status) {
    if (status < 0)
        broken(what, fi_strerror((int)-status));
}

/* What it finds is a process's endpoint: `name` is that of its shared memory. */
static int find_provider(const char *name) {
    struct fi_info *hints = fi_allocinfo();
    hints->caps = FI_MSG;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints->fabric_attr->prov_name = strdup("shm");
    int status = fi_getinfo(FI_VERSION(1, 14), name, NULL, FI_SOURCE, hints, &info);
    fi_freeinfo(hints);
    return status;
}

static size_t make(int processes, size_t size) {
    (void)processes;
    measures = getpid();
    if (find_provider("channel") != 0)
        missing("this libfabric has no provider shm");
    fi_freeinfo(info);
    return size;
}

static void open_endpoint(int me) {
    char name[64];
    struct fi_av_attr av = {.type = FI_AV_TABLE, .count = PROCESSES};
    struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_CONTEXT};
    snprintf(name, sizeof name, "channel-%d-%d", measures, me);
    check("fi_getinfo", find_provider(name));
    check("fi_fabric", fi_fabric(info->fabric_attr, &fabric, NULL));
    check("fi_domain", fi_domain(fabric, info, &domain, NULL));
    check("fi_endpoint", fi_endpoint(domain, info, &endpoint, NULL));
    check("fi_av_open", fi_av_open(domain, &av, &addresses, NULL));
    check("fi_cq_open", fi_cq_open(domain, &cq, &sent, NULL));
    check("fi_cq_open", fi_cq_open(domain, &cq, &received, NULL));
    check("fi_ep_bind", fi_ep_bind(endpoint, &addresses->fid, 0));
    check("fi_ep_bind", fi_ep_bind(endpoint, &sent->fid, FI_TRANSMIT));
    check("fi_ep_bind", fi_ep_bind(endpoint, &received->fid, FI_RECV));
    check("fi_enable", fi_enable(endpoint));
}

static void open_inbox(int me) {
    size_t length = BOARD_SIZE;
    open_endpoint(me);
    check("fi_getname", fi_getname(&endpoint->fid, board_of(me), &length));
    meet();
    for (int i = 0; i < process_count(); i++)
        if (fi_av_insert(addresses, board_of(i), 1, &peer[i], 0, NULL) != 1)
            broken("fi_av_insert", "an address was not taken");
}

/* Progress is made by looking at a queue. */
static int completed(struct fid_cq *queue) {
    struct fi_cq_entry entry;
    ssize_t got = fi_cq_read(queue, &entry, 1);
    if (got != -FI_EAGAIN)
        check("fi_cq_read", got);
    return got == 1;
}

static void await(struct fid_cq *queue) {
    unsigned times = 0;
    while (!completed(queue))
        idle(&times);
}

/* Whether it has to be tried again, when others have been helped. */
static int full(const char *what, ssize_t status, unsigned *times) {
    if (status != -FI_EAGAIN) {
        check(what, status);
        return 0;
    }
    fi_cq_read(sent, NULL, 0);
    idle(times);
    return 1;
}

static void send_message(int to, const void *message, size_t size) {
    unsigned times = 0;
    if (size <= info->tx_attr->inject_size) {
        while (full("fi_inject", fi_inject(endpoint, message, size, peer[to]), &times))
            ;
        return;
    }
    while (full("fi_send", fi_send(endpoint, message, size, NULL, peer[to], NULL), &times))
        ;
    await(sent);
}

static void receive_message(void *message, size_t size) {
    unsigned times = 0;
    while (full("fi_recv", fi_recv(endpoint, message, size, NULL, FI_ADDR_UNSPEC, NULL), &times))
        ;
    await(received);
}

static void close_endpoint(void) {
    struct fid *all[] = {&endpoint->fid,  &sent->fid,   &received->fid,
                         &addresses->fid, &domain->fid, &fabric->fid};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        check("fi_close", fi_close(all[i]));
}

static const struct channel shm = {
    .name = "fabric",
    .version = VERSION,
    .make = make,
    .open = open_inbox,
    .send = send_message,
    .receive = receive_message,
    .close = close_endpoint,
    .remove = nothing,
};

const struct channel *const channels[] = {&shm, NULL};
