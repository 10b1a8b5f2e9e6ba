/*
 * Two processes that UCX connects, and that hear when the other dies. Usage: keepalive FILE
 * OTHERS_FILE; each writes its address to FILE, and a line once it is connected and once the other
 * is dead.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

static ucs_status_t ended = UCS_OK;

static void check(int good, const char *what) {
    if (!good) {
        fprintf(stderr, "%s\n", what);
        exit(1);
    }
}

static void has_ended(void *unused, ucp_ep_h ep, ucs_status_t status) {
    (void)unused, (void)ep;
    ended = status;
}

/* Gets its name when it is whole. */
static void publish(const char *path, const void *bytes, size_t size) {
    char whole[300];
    snprintf(whole, sizeof whole, "%s.part", path);
    FILE *file = fopen(whole, "w");
    check(file && fwrite(bytes, 1, size, file) == size && fclose(file) == 0, "no address written");
    check(rename(whole, path) == 0, "no address published");
}

static size_t await(const char *path, void *bytes, size_t size) {
    FILE *file;
    while ((file = fopen(path, "r")) == NULL)
        usleep(10000);
    size = fread(bytes, 1, size, file);
    fclose(file);
    return size;
}

int main(int argc, char **argv) {
    static char theirs[65536];
    check(argc == 3, "usage: keepalive FILE OTHERS_FILE");
    ucp_config_t *config;
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_address_t *ours;
    ucp_ep_h ep;
    size_t length;
    const ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                                 .features = UCP_FEATURE_TAG};
    const ucp_worker_params_t worker_params = {0};
    check(ucp_config_read(NULL, NULL, &config) == UCS_OK, "no configuration");
    check(ucp_init(&params, config, &context) == UCS_OK, "no context");
    check(ucp_worker_create(context, &worker_params, &worker) == UCS_OK, "no worker");
    check(ucp_worker_get_address(worker, &ours, &length) == UCS_OK, "no address");
    publish(argv[1], ours, length);
    check(await(argv[2], theirs, sizeof theirs) > 0, "no address of the other");
    const ucp_ep_params_t ep_params = {
        .field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER,
        .address = (ucp_address_t *)theirs,
        .err_mode = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler.cb = has_ended,
    };
    check(ucp_ep_create(worker, &ep_params, &ep) == UCS_OK, "no endpoint");
    puts("connected");
    fflush(stdout);
    const time_t begin = time(NULL);
    while (ended == UCS_OK && time(NULL) - begin < 60)
        ucp_worker_progress(worker);
    puts(ended == UCS_OK ? "nothing ended" : ucs_status_string(ended));
    return 0;
}
