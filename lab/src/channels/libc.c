/* The channels of the program "channel". */
#include "libc.h"

const struct channel *const channels[] = {
    &sysv_queues, &sysv_segments, &posix_queues, &pipes, &unix_sockets, &tcp, &vsock, &ring, NULL};
