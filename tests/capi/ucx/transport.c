/* In the place of a library of UCX's transports, or of an MPI's plug-in: it asks. */
#include "transport.h"

uint64_t ucs_get_system_id(void);
ino_t ucs_sys_get_ns(int kind);
int ucs_sys_ns_is_default(int kind);
unsigned long ucs_sys_get_proc_create_time(pid_t pid);
signed char ucp_worker_query(void *worker, struct ucp_worker_attr *attr);
unsigned ucp_worker_progress(void *worker);

void ask(struct answers *to) {
    to->id = ucs_get_system_id();
    for (int kind = 0; kind < KINDS; kind++) {
        to->space[kind] = ucs_sys_get_ns(kind);
        to->initial[kind] = ucs_sys_ns_is_default(kind);
    }
}

unsigned long start_of(pid_t pid) { return ucs_sys_get_proc_create_time(pid); }

int query(void *worker, struct ucp_worker_attr *attr) { return ucp_worker_query(worker, attr); }

unsigned progress(void *worker) { return ucp_worker_progress(worker); }
