/* UCX: tagged messages by one of its shared-memory transports and nothing else, as UCX_TLS=sysv or
 * UCX_TLS=posix chooses them; all else is as UCX has it by default. */
#include "channel.h"

#include <string.h>
#include <ucp/api/ucp.h>

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
#define VERSION TEXT(UCP_API_MAJOR) "." TEXT(UCP_API_MINOR)

enum { TAG = 1 };

static ucp_context_h context;
static ucp_worker_h worker;
static ucp_ep_h peer[PROCESSES];
static const char *transport;

/* What a process writes on its board. */
struct address {
    size_t length;
    char text[];
};

static void check(const char *what, ucs_status_t status) {
    if (status != UCS_OK)
        broken(what, ucs_status_string(status));
}

static size_t make_sysv(int processes, size_t size) {
    (void)processes;
    transport = "sysv,self";
    return size;
}

static size_t make_posix(int processes, size_t size) {
    (void)processes;
    transport = "posix,self";
    return size;
}

static void open_worker(void) {
    ucp_config_t *config;
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_TAG};
    ucp_worker_params_t single = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                  .thread_mode = UCS_THREAD_MODE_SINGLE};
    check("ucp_config_read", ucp_config_read(NULL, NULL, &config));
    check("UCX_TLS", ucp_config_modify(config, "TLS", transport));
    check("ucp_init", ucp_init(&params, config, &context));
    ucp_config_release(config);
    check("ucp_worker_create", ucp_worker_create(context, &single, &worker));
}

static void publish_address(int me) {
    ucp_address_t *own;
    struct address *board = (struct address *)board_of(me);
    check("ucp_worker_get_address", ucp_worker_get_address(worker, &own, &board->length));
    if (sizeof *board + board->length > BOARD_SIZE)
        broken("ucp_worker_get_address", "the address is too long");
    memcpy(board->text, own, board->length);
    ucp_worker_release_address(worker, own);
}

static void open_endpoints(int me) {
    open_worker();
    publish_address(me);
    meet();
    for (int i = 0; i < process_count(); i++) {
        const struct address *board = (const struct address *)board_of(i);
        ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
                                  .address = (const ucp_address_t *)board->text};
        check("ucp_ep_create", ucp_ep_create(worker, &params, &peer[i]));
    }
}

static void finish(ucs_status_ptr_t request) {
    ucs_status_t status = UCS_PTR_STATUS(request);
    unsigned times = 0;
    if (UCS_PTR_IS_PTR(request)) {
        while ((status = ucp_request_check_status(request)) == UCS_INPROGRESS)
            if (ucp_worker_progress(worker) == 0)
                idle(&times);
        ucp_request_free(request);
    }
    check("UCX", status);
}

static const ucp_request_param_t plain;

static void send_tagged(int to, const void *message, size_t size) {
    finish(ucp_tag_send_nbx(peer[to], message, size, TAG, &plain));
}

static void receive_tagged(void *message, size_t size) {
    finish(ucp_tag_recv_nbx(worker, message, size, TAG, (ucp_tag_t)-1, &plain));
}

static void close_endpoints(void) {
    for (int i = 0; i < process_count(); i++)
        finish(ucp_ep_close_nbx(peer[i], &plain));
    meet();
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
}

static const struct channel sysv = {
    .name = "ucx-sysv",
    .version = VERSION,
    .make = make_sysv,
    .open = open_endpoints,
    .send = send_tagged,
    .receive = receive_tagged,
    .close = close_endpoints,
    .remove = nothing,
};

static const struct channel posix = {
    .name = "ucx-posix",
    .version = VERSION,
    .make = make_posix,
    .open = open_endpoints,
    .send = send_tagged,
    .receive = receive_tagged,
    .close = close_endpoints,
    .remove = nothing,
};

const struct channel *const channels[] = {&sysv, &posix, NULL};
