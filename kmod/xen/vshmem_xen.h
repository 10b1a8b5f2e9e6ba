/* SPDX-License-Identifier: GPL-2.0 */
/* The types and functions that the files of vshmem_xen.ko share. */
#ifndef VSHMEM_XEN_H
#define VSHMEM_XEN_H

#include <linux/cdev.h>
#include <linux/device.h>
#include <linux/interrupt.h>
#include <linux/mm.h>
#include <linux/rwsem.h>
#include <linux/spinlock.h>
#include <xen/events.h>
#include <xen/grant_table.h>

#include "vshmem_ioctl.h"
#include "vshmem_xen_ioctl.h"

#define NAME "vshmem-xen"
#define MAX_POOLS 256
#define MAX_PAGES (VSHMEM_XEN_LISTS * (PAGE_SIZE / sizeof(grant_ref_t)))
#define TABLE_BITS 6

/* Threads that sleep on words of a pool; see sleep.c. */
struct sleepers {
	spinlock_t lock; /* everything here */
	bool gone;
	struct list_head table[1 << TABLE_BITS]; /* by offset */
};

/* What an owner has granted to one domain; see share.c. */
struct grant {
	struct list_head node; /* in pool.grants; or see end.c */
	struct pool *pool;
	domid_t domid;
	evtchn_port_t port;
	int irq;
	unsigned int granted; /* how many of the pool's pages */
	unsigned int listed;  /* how many of @lists */
	grant_ref_t *refs;
	struct page *lists[VSHMEM_XEN_LISTS];
	grant_ref_t list_refs[VSHMEM_XEN_LISTS];
};

struct pool {
	struct device dev;
	struct cdev cdev;
	struct list_head node; /* in the list of pools */
	char name[VSHMEM_XEN_NAME];
	u64 size;
	unsigned int count;
	struct page **pages;
	domid_t self;
	domid_t owner;
	struct vshmem_identity identity;

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

	/* @gone for faults and doorbells, @files */
	struct rw_semaphore revoke_rwsem;
	bool gone;
	struct list_head files;
	struct sleepers sleepers;
};

static inline bool pool_is_owned(const struct pool *pool)
{
	return pool->owner == pool->self;
}

/* share.c: granting and mapping */
struct grant *share_grant(struct pool *pool, domid_t domid);
void share_revoke(struct grant *grant);
int share_attach(struct pool *pool, const struct vshmem_xen_attach *req);
bool share_is_current(struct pool *pool);
void share_detach(struct pool *pool);
void share_ring(struct pool *pool, u32 peer);

/* end.c: ending grants, also of pages that are still mapped */
void end_grant(struct grant *grant);
void end_wait(void);

/* pool.c: pools and their device files */
struct pool *pool_new(const char *name, u64 size, domid_t self, domid_t owner);
int pool_fill(struct pool *pool);
int pool_add(struct pool *pool);
struct pool *pool_find(const char *name);
void pool_remove(struct pool *pool);
void pools_drop_server(struct file *server);
int pools_init(void);
void pools_exit(void);
extern struct mutex pools_lock;

/* file.c */
extern const struct file_operations pool_fops;
void file_revoke(struct pool *pool);

/* sleep.c */
void sleepers_init(struct sleepers *all);
void sleepers_check(struct pool *pool, int error);
long sleepers_wait(struct pool *pool, void __user *arg);
long sleepers_wake(struct pool *pool, void __user *arg);

#endif /* VSHMEM_XEN_H */
