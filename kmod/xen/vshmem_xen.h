/* SPDX-License-Identifier: GPL-2.0 */
/* The types and functions that the files of vshmem_xen.ko share. */
#ifndef VSHMEM_XEN_H
#define VSHMEM_XEN_H

#include <xen/events.h>
#include <xen/grant_table.h>

#include "../pool.h"
#include "vshmem_xen_ioctl.h"

#define NAME "vshmem-xen"
#define MAX_PAGES (VSHMEM_XEN_LISTS * (PAGE_SIZE / sizeof(grant_ref_t)))

/* What an owner has granted to one domain; see share.c. */
struct grant {
	struct list_head node; /* in xen_pool.grants; or see end.c */
	struct xen_pool *owned;
	domid_t domid;
	evtchn_port_t port;
	int irq;
	unsigned int granted; /* how many of the pool's pages */
	unsigned int listed;  /* how many of @lists */
	grant_ref_t *refs;
	struct page *lists[VSHMEM_XEN_LISTS];
	grant_ref_t list_refs[VSHMEM_XEN_LISTS];
};

struct xen_pool {
	struct pool pool;
	struct list_head node; /* in the list of pools */
	char name[VSHMEM_XEN_NAME];
	unsigned int count;
	struct page **pages;
	domid_t self;
	domid_t owner;

	/* Another domain's pool: the mapping of its pages, and the doorbell. */
	struct gnttab_unmap_grant_ref *unmap;
	evtchn_port_t port;
	int irq;

	/*
	 * This domain's pool. @grants is changed under pools_lock and
	 * @grants_lock, and read under either; @server under pools_lock.
	 */
	spinlock_t grants_lock;
	struct list_head grants;
	struct file *server; /* only compared */
};

static inline bool is_owned(const struct xen_pool *xp)
{
	return xp->owner == xp->self;
}

/* share.c: granting and mapping. Under pools_lock, but for share_ring(). */
struct grant *share_find(struct xen_pool *xp, domid_t domid);
struct grant *share_grant(struct xen_pool *xp, domid_t domid);
void share_revoke(struct grant *grant);
int share_attach(struct xen_pool *xp, const struct vshmem_xen_attach *req);
bool share_is_current(struct xen_pool *xp);
void share_detach(struct xen_pool *xp);
void share_ring(struct xen_pool *xp, u32 peer);

/* end.c: ending grants, also of pages that are still mapped */
void end_grant(struct grant *grant);
void end_wait(void);

/* list.c: the domain's pools. Under pools_lock. */
extern struct mutex pools_lock;
struct xen_pool *list_new(const char *name, u64 size, domid_t self,
			  domid_t owner);
int list_fill(struct xen_pool *xp);
int list_add_pool(struct xen_pool *xp);
struct xen_pool *list_find(const char *name);
void list_remove(struct xen_pool *xp);
void list_drop_server(struct file *server);

#endif /* VSHMEM_XEN_H */
