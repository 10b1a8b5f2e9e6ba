// SPDX-License-Identifier: GPL-2.0
/*
 * Pools and their device files: creating, finding and removing them.
 *
 * A pool's memory exists as long as its file is open: a program may be in the
 * middle of a fault. Removing a pool ends all mappings first.
 */
#include <linux/idr.h>
#include <linux/kdev_t.h>
#include <linux/module.h>
#include <linux/random.h>
#include <linux/slab.h>
#include <linux/timekeeping.h>

#include "vshmem_xen.h"

DEFINE_MUTEX(pools_lock);
static LIST_HEAD(pools); /* under pools_lock */
static dev_t pools_devt;
static DEFINE_IDA(minors);

/*
 * A domain's mappings of another domain's pages don't survive a save, so they
 * are removed first: a process that has the pool mapped gets SIGBUS when the
 * domain goes on. The device file remains, and is replaced by that of the pool
 * that is attached next. Grants don't survive a save either, so a domain with
 * granted pools refuses it.
 */
static int pool_freeze(struct device *dev)
{
	struct pool *pool = container_of(dev, struct pool, dev);
	bool granted;

	if (pool_is_owned(pool)) {
		spin_lock_irq(&pool->grants_lock);
		granted = !list_empty(&pool->grants);
		spin_unlock_irq(&pool->grants_lock);
		if (granted)
			dev_err(dev, "is in use by other domains, so this one "
				     "can't be saved\n");
		return granted ? -EBUSY : 0;
	}
	file_revoke(pool);
	share_detach(pool);
	return 0;
}

static const struct dev_pm_ops pool_pm = { .freeze = pool_freeze };
static struct class pool_class = { .name = NAME, .pm = &pool_pm };

static void free_own_pages(struct pool *pool)
{
	unsigned int i;

	for (i = 0; i < pool->count && pool->pages[i]; i++)
		__free_page(pool->pages[i]);
}

static void pool_release(struct device *dev)
{
	struct pool *pool = container_of(dev, struct pool, dev);

	if (pool_is_owned(pool))
		free_own_pages(pool);
	kvfree(pool->pages);
	ida_free(&minors, MINOR(dev->devt) - MINOR(pools_devt));
	kfree(pool);
}

static bool is_name(const char *name)
{
	size_t len = strnlen(name, VSHMEM_XEN_NAME);

	return len && len < VSHMEM_XEN_NAME &&
	       strspn(name, "abcdefghijklmnopqrstuvwxyz"
			    "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == len &&
	       strcmp(name, ".") && strcmp(name, "..");
}

static int pool_number(struct pool *pool)
{
	int number = ida_alloc_max(&minors, MAX_POOLS - 1, GFP_KERNEL);

	if (number < 0)
		return number;
	device_initialize(&pool->dev);
	pool->dev.class = &pool_class;
	pool->dev.release = pool_release;
	pool->dev.devt = MKDEV(MAJOR(pools_devt), MINOR(pools_devt) + number);
	return 0;
}

/*
 * A copy of a domain may get the same random numbers for a while. But it gets
 * the pool at another time, and has another id.
 */
static void init_identity(struct pool *pool)
{
	u64 *id = pool->identity.id;

	get_random_bytes(id, sizeof(pool->identity.id));
	id[0] ^= ktime_get_real_ns();
	id[1] ^= pool->self;
}

/* A pool without memory. put_device() frees it. */
struct pool *pool_new(const char *name, u64 size, domid_t self, domid_t owner)
{
	struct pool *pool;
	int err;

	if (!is_name(name) || !size || !PAGE_ALIGNED(size) ||
	    size >> PAGE_SHIFT > MAX_PAGES)
		return ERR_PTR(-EINVAL);
	pool = kzalloc(sizeof(*pool), GFP_KERNEL);
	if (!pool)
		return ERR_PTR(-ENOMEM);
	strscpy(pool->name, name, sizeof(pool->name));
	pool->size = size;
	pool->count = size >> PAGE_SHIFT;
	pool->self = self;
	pool->owner = owner;
	init_identity(pool);
	spin_lock_init(&pool->grants_lock);
	INIT_LIST_HEAD(&pool->grants);
	INIT_LIST_HEAD(&pool->node);
	INIT_LIST_HEAD(&pool->files);
	init_rwsem(&pool->revoke_rwsem);
	sleepers_init(&pool->sleepers);
	pool->pages = kvcalloc(pool->count, sizeof(*pool->pages), GFP_KERNEL);
	err = pool->pages ? pool_number(pool) : -ENOMEM;
	if (err) {
		kvfree(pool->pages);
		kfree(pool);
		return ERR_PTR(err);
	}
	if (dev_set_name(&pool->dev, NAME "!%s", pool->name)) {
		put_device(&pool->dev);
		return ERR_PTR(-ENOMEM);
	}
	return pool;
}

/* Allocates a pool's memory, which is this domain's own. */
int pool_fill(struct pool *pool)
{
	unsigned int i;

	for (i = 0; i < pool->count; i++) {
		pool->pages[i] = alloc_page(GFP_KERNEL | __GFP_ZERO |
					    __GFP_NOWARN | __GFP_RETRY_MAYFAIL);
		if (!pool->pages[i])
			return -ENOMEM;
	}
	return 0;
}

/* Under pools_lock. */
struct pool *pool_find(const char *name)
{
	struct pool *pool;

	list_for_each_entry(pool, &pools, node) {
		if (!strncmp(pool->name, name, VSHMEM_XEN_NAME))
			return pool;
	}
	return NULL;
}

/* Under pools_lock. Adds the device file; from then on programs can use it. */
int pool_add(struct pool *pool)
{
	int err;

	cdev_init(&pool->cdev, &pool_fops);
	pool->cdev.owner = THIS_MODULE;
	err = cdev_device_add(&pool->cdev, &pool->dev);
	if (err)
		return err;
	__module_get(THIS_MODULE);
	list_add_tail(&pool->node, &pools);
	dev_info(&pool->dev, "%llu KiB of domain %u\n", pool->size >> 10,
		 pool->owner);
	return 0;
}

/* Under pools_lock, in a call by a file of this module, which keeps it loaded.
 */
void pool_remove(struct pool *pool)
{
	struct grant *grant, *next;

	list_del(&pool->node);
	cdev_device_del(&pool->cdev, &pool->dev);
	file_revoke(pool);
	list_for_each_entry_safe(grant, next, &pool->grants, node)
		share_revoke(grant);
	share_detach(pool);
	put_device(&pool->dev);
	module_put(THIS_MODULE);
}

/* Under pools_lock. The pools that this file serves are served no longer. */
void pools_drop_server(struct file *server)
{
	struct pool *pool;

	list_for_each_entry(pool, &pools, node) {
		if (pool->server == server)
			pool->server = NULL;
	}
}

int pools_init(void)
{
	int err = alloc_chrdev_region(&pools_devt, 0, MAX_POOLS, NAME);

	if (err)
		return err;
	err = class_register(&pool_class);
	if (err)
		unregister_chrdev_region(pools_devt, MAX_POOLS);
	return err;
}

/* The module is not unloaded while there is a pool. */
void pools_exit(void)
{
	end_wait();
	class_unregister(&pool_class);
	unregister_chrdev_region(pools_devt, MAX_POOLS);
	ida_destroy(&minors);
}
