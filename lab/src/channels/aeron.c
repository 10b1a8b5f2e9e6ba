/* Aeron: messages by its channel "aeron:ipc". Its media driver is a process beside, set up as its
 * script ipc-c-media-driver has it, but that the one thread backs off, as it does by default, where
 * that script has it spin: a pair's two processors have no room for a third. Each sender has an
 * exclusive publication, and a receiver polls its subscription for one message, as cping does. */
#include "../bench.h"
#include "channel.h"

#include <aeronc.h>
#include <aeronmd.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Three terms are a publication's buffer, and an eighth of one is the longest message. */
enum { TERM = 64 << 20, MOST = TERM / 8 };
enum { MTU = 8192 };     /* of a message's fragments */
enum { FRAGMENTS = 10 }; /* that one poll looks at */
enum { STREAM = 1001 };  /* the first inbox */

static char folder[64];
static atomic_int *ended;
static pid_t driver;

static aeron_context_t *context;
static aeron_t *client;
static aeron_subscription_t *inbox;
static aeron_controlled_fragment_assembler_t *assembler;
static aeron_exclusive_publication_t *peer[PROCESSES];

/* Where the next message goes. */
static struct {
    void *text;
    size_t size;
    int came;
} wanted;

static void check(const char *what, int status) {
    if (status < 0)
        broken(what, aeron_errmsg());
}

/* The media driver, until the others have ended. */
static void drive(void *arg) {
    aeron_driver_context_t *settings;
    aeron_driver_t *it;
    (void)arg;
    check("aeron_driver_context_init", aeron_driver_context_init(&settings));
    aeron_driver_context_set_dir(settings, folder);
    aeron_driver_context_set_dir_delete_on_shutdown(settings, true);
    aeron_driver_context_set_threading_mode(settings, AERON_THREADING_MODE_SHARED);
    aeron_driver_context_set_term_buffer_sparse_file(settings, false);
    aeron_driver_context_set_ipc_term_buffer_length(settings, TERM);
    aeron_driver_context_set_ipc_mtu_length(settings, MTU);
    check("aeron_driver_init", aeron_driver_init(&it, settings));
    check("aeron_driver_start", aeron_driver_start(it, true));
    while (!atomic_load(ended))
        aeron_driver_main_idle_strategy(it, aeron_driver_main_do_work(it));
    check("aeron_driver_close", aeron_driver_close(it));
    check("aeron_driver_context_close", aeron_driver_context_close(settings));
}

static size_t make(int processes, size_t size) {
    (void)processes;
    snprintf(folder, sizeof folder, "/dev/shm/channel-%d-aeron", getpid());
    ended = shared_memory(sizeof *ended);
    driver = child(drive, NULL);
    return size < MOST ? size : MOST;
}

static aeron_controlled_fragment_handler_action_t take(void *arg, const uint8_t *text, size_t size,
                                                       aeron_header_t *header) {
    (void)arg, (void)header;
    if (wanted.came) /* from another sender, in the same poll */
        return AERON_ACTION_ABORT;
    if (size != wanted.size)
        broken("aeron_subscription_controlled_poll", "a message came short");
    memcpy(wanted.text, text, size);
    wanted.came = 1;
    return AERON_ACTION_BREAK;
}

static void open_client(void) {
    check("aeron_context_init", aeron_context_init(&context));
    check("aeron_context_set_dir", aeron_context_set_dir(context, folder));
    check("aeron_init", aeron_init(&client, context)); /* waits for the driver */
    check("aeron_start", aeron_start(client));
}

static void open_subscription(int me) {
    aeron_async_add_subscription_t *asked;
    check("aeron_async_add_subscription",
          aeron_async_add_subscription(&asked, client, "aeron:ipc", STREAM + me, NULL, NULL, NULL,
                                       NULL));
    while (inbox == NULL) {
        check("aeron_async_add_subscription_poll",
              aeron_async_add_subscription_poll(&inbox, asked));
        usleep(1000);
    }
    check("aeron_controlled_fragment_assembler_create",
          aeron_controlled_fragment_assembler_create(&assembler, take, NULL));
}

static void open_publication(int to) {
    aeron_async_add_exclusive_publication_t *asked;
    check("aeron_async_add_exclusive_publication",
          aeron_async_add_exclusive_publication(&asked, client, "aeron:ipc", STREAM + to));
    while (peer[to] == NULL) {
        check("aeron_async_add_exclusive_publication_poll",
              aeron_async_add_exclusive_publication_poll(&peer[to], asked));
        usleep(1000);
    }
    while (!aeron_exclusive_publication_is_connected(peer[to]))
        usleep(1000);
}

/* One that measures is sent to by the others, and answers; they send to it alone. */
static int sends(int me, int to) { return to == 0 ? me > 0 || process_count() == 1 : me == 0; }

static void open_inbox(int me) {
    open_client();
    open_subscription(me);
    meet();
    for (int to = 0; to < process_count(); to++)
        if (sends(me, to))
            open_publication(to);
    int senders = me > 0 ? 1 : process_count() > 1 ? process_count() - 1 : 1;
    while (aeron_subscription_image_count(inbox) < senders)
        usleep(1000);
}

static void send_message(int to, const void *message, size_t size) {
    unsigned times = 0;
    int64_t at;
    while ((at = aeron_exclusive_publication_offer(peer[to], message, size, NULL, NULL)) < 0) {
        if (at != AERON_PUBLICATION_BACK_PRESSURED && at != AERON_PUBLICATION_ADMIN_ACTION)
            broken("aeron_exclusive_publication_offer", aeron_errmsg());
        idle(&times);
    }
}

static void receive_message(void *message, size_t size) {
    unsigned times = 0;
    wanted.text = message, wanted.size = size, wanted.came = 0;
    while (!wanted.came) {
        int found = aeron_subscription_controlled_poll(
            inbox, aeron_controlled_fragment_assembler_handler, assembler, FRAGMENTS);
        check("aeron_subscription_controlled_poll", found);
        if (found == 0)
            idle(&times);
    }
}

static void close_client(void) {
    check("aeron_close", aeron_close(client));
    check("aeron_context_close", aeron_context_close(context));
    check("aeron_controlled_fragment_assembler_delete",
          aeron_controlled_fragment_assembler_delete(assembler));
}

static void end_driver(void) {
    atomic_store(ended, 1);
    join(driver);
}

static const struct channel ipc = {
    .name = "aeron",
    .version = VERSION,
    .make = make,
    .open = open_inbox,
    .send = send_message,
    .receive = receive_message,
    .close = close_client,
    .remove = end_driver,
};

const struct channel *const channels[] = {&ipc, NULL};
