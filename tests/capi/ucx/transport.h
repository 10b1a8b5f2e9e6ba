#ifndef TRANSPORT_H
#define TRANSPORT_H

#include "ucp.h"
#include <sys/types.h>

enum { IPC, MNT, NET, PID, USER, UTS, KINDS };

struct answers {
    uint64_t id, space[KINDS];
    int initial[KINDS];
};

void ask(struct answers *to);
unsigned long start_of(pid_t pid);
int query(void *worker, struct ucp_worker_attr *attr);
unsigned progress(void *worker);

#endif
