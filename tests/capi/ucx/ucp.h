/* The head of UCX's ucp_worker_attr_t. */
#ifndef UCP_H
#define UCP_H

#include <stddef.h>
#include <stdint.h>

struct ucp_worker_attr {
    uint64_t field_mask;
    int thread_mode;
    uint32_t address_flags;
    void *address;
    size_t address_length;
};

enum { FIELD_ADDRESS = 2, FIELD_ADDRESS_FLAGS = 4, NET_ONLY = 1 };

#endif
