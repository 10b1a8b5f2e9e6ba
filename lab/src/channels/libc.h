/* The channels that need nothing but the kernel and the C library. */
#ifndef LIBC_H
#define LIBC_H

#include "channel.h"

extern const struct channel sysv_queues, sysv_segments, posix_queues, pipes, unix_sockets, tcp,
    vsock, ring;

#endif
