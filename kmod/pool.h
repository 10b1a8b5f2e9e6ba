/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What both drivers have: a pool, its device file, and the threads that sleep
 * on its words. pool.c, file.c and sleep.c are compiled into each.
 */
#ifndef VSHMEM_POOL_H
#define VSHMEM_POOL_H

#include <linux/cdev.h>
#include <linux/device.h>
#include <linux/fs.h>
#include <linux/interrupt.h>
#include <linux/rwsem.h>
#include <linux/spinlock.h>

#include "vshmem_ioctl.h"

#define BUCKETS_BITS 6
#define BUCKETS BIT(BUCKETS_BITS)

/* Threads that sleep on words of a pool; see sleep.c. */
struct sleepers {
	spinlock_t lock; /* everything here */
	unsigned int count;
	struct list_head buckets[BUCKETS]; /* by the word's address */
};

/*
 * Why no process reaches the memory of a pool that is gone
 *   Faults and doorbells run under @revoke_rwsem, taken for reading, and do
 *   nothing if @gone is set. It is set under @revoke_rwsem, taken for writing,
 *   and all mappings are zapped before that is released. Sleepers check @gone
 *   under their lock, which is taken after it was set to wake all of them. A
 *   fault in a mapping that remains then gets a page of zeros.
 */
struct pool {
	struct device dev;
	struct cdev cdev;
	struct vshmem_identity identity;
	u64 size;
	unsigned int vectors; /* of the doorbell; 0: there is none */
	bool cached;	      /* mappings are write-back */
	bool huge;	      /* and may have huge pages */

	/* Its address space has all mappings, whatever inode was opened. */
	struct inode *inode;
	struct rw_semaphore revoke_rwsem;
	bool gone;
	struct sleepers sleepers;
};

/* pool.c */
int pools_init(void);
void pools_exit(void);
int pool_init(struct pool *pool);
int pool_add(struct pool *pool);
void pool_remove(struct pool *pool);
void pool_revoke(struct pool *pool);

/* file.c */
extern const struct file_operations pool_fops;

/* sleep.c. The data of the interrupt and of its thread are the sleepers. */
void sleepers_init(struct sleepers *all);
void sleepers_check(struct sleepers *all, int error);
irqreturn_t sleepers_interrupt(int irq, void *data);
irqreturn_t sleepers_thread(int irq, void *data);
long sleepers_wait(struct pool *pool, void __user *arg);
long sleepers_wake(struct pool *pool, void __user *arg);

/* What each driver defines. */
extern struct class pool_class;
void pool_free(struct pool *pool);
void *pool_address(struct pool *pool, u64 offset);
/* These under revoke_rwsem. */
unsigned long pool_pfn(struct pool *pool, pgoff_t page);
void pool_describe(struct pool *pool, struct vshmem_info *info);
void pool_ring(struct pool *pool, const struct vshmem_ring *ring);

#endif /* VSHMEM_POOL_H */
