// SPDX-License-Identifier: GPL-2.0
/*
 * The domain's pools: creating, finding and removing them.
 *
 * A pool's memory exists as long as its file is open: a program may be in the
 * middle of a fault. Removing a pool ends all mappings first.
 */
#include <linux/module.h>
#include <linux/slab.h>

#include "vshmem_xen.h"

DEFINE_MUTEX(pools_lock);
static LIST_HEAD(pools); /* under pools_lock */

static struct xen_pool *to_xen(struct pool *pool)
{
	return container_of(pool, struct xen_pool, pool);
}

/*
 * A domain's mappings of another domain's pages don't survive a save, so they
 * are removed first: a process that has the pool mapped gets SIGBUS when the
 * domain goes on. The device file remains, and is replaced by that of the pool
 * that is attached next. Grants don't survive a save either, so a domain with
 * granted pools refuses it.
 */
static int freeze(struct device *dev)
{
	struct xen_pool *xp = to_xen(container_of(dev, struct pool, dev));
	bool granted;

	if (is_owned(xp)) {
		spin_lock(&xp->grants_lock);
		granted = !list_empty(&xp->grants);
		spin_unlock(&xp->grants_lock);
		if (granted)
			dev_err(dev, "is in use by other domains, so this one "
				     "can't be saved\n");
		return granted ? -EBUSY : 0;
	}
	pool_revoke(&xp->pool);
	share_detach(xp);
	return 0;
}

static const struct dev_pm_ops pool_pm = { .freeze = freeze };
struct class pool_class = { .name = NAME, .pm = &pool_pm };

void pool_free(struct pool *pool)
{
	struct xen_pool *xp = to_xen(pool);
	unsigned int i;

	if (is_owned(xp)) {
		for (i = 0; i < xp->count && xp->pages[i]; i++)
			__free_page(xp->pages[i]);
	}
	kvfree(xp->pages);
	kfree(xp);
}

unsigned long pool_pfn(struct pool *pool, pgoff_t page)
{
	return page_to_pfn(to_xen(pool)->pages[page]);
}

void *pool_address(struct pool *pool, u64 offset)
{
	return page_address(to_xen(pool)->pages[offset >> PAGE_SHIFT]) +
	       offset_in_page(offset);
}

void pool_describe(struct pool *pool, struct vshmem_info *info)
{
	info->member = to_xen(pool)->self;
}

void pool_ring(struct pool *pool, const struct vshmem_ring *ring)
{
	share_ring(to_xen(pool), ring->peer);
}

static bool is_name(const char *name)
{
	size_t len = strnlen(name, VSHMEM_XEN_NAME);

	return len && len < VSHMEM_XEN_NAME &&
	       strspn(name, "abcdefghijklmnopqrstuvwxyz"
			    "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == len &&
	       strcmp(name, ".") && strcmp(name, "..");
}

/* A pool without memory. put_device() frees it. */
struct xen_pool *list_new(const char *name, u64 size, domid_t self,
			  domid_t owner)
{
	struct xen_pool *xp;
	int err;

	if (!is_name(name) || !size || !PAGE_ALIGNED(size) ||
	    size >> PAGE_SHIFT > MAX_PAGES)
		return ERR_PTR(-EINVAL);
	xp = kzalloc(sizeof(*xp), GFP_KERNEL);
	if (!xp)
		return ERR_PTR(-ENOMEM);
	strscpy(xp->name, name, sizeof(xp->name));
	xp->count = size >> PAGE_SHIFT;
	xp->self = self;
	xp->owner = owner;
	spin_lock_init(&xp->grants_lock);
	INIT_LIST_HEAD(&xp->grants);
	xp->pool.size = size;
	xp->pool.vectors = 1;
	xp->pool.cached = true;
	xp->pages = kvcalloc(xp->count, sizeof(*xp->pages), GFP_KERNEL);
	err = xp->pages ? pool_init(&xp->pool) : -ENOMEM;
	if (err) {
		kvfree(xp->pages);
		kfree(xp);
		return ERR_PTR(err);
	}
	xp->pool.identity.id[1] ^= self;
	err = dev_set_name(&xp->pool.dev, NAME "!%s", xp->name);
	if (err) {
		put_device(&xp->pool.dev);
		return ERR_PTR(err);
	}
	return xp;
}

/* Allocates a pool's memory, which is this domain's own. */
int list_fill(struct xen_pool *xp)
{
	unsigned int i;

	for (i = 0; i < xp->count; i++) {
		xp->pages[i] = alloc_page(GFP_KERNEL | __GFP_ZERO |
					  __GFP_NOWARN | __GFP_RETRY_MAYFAIL);
		if (!xp->pages[i])
			return -ENOMEM;
	}
	return 0;
}

struct xen_pool *list_find(const char *name)
{
	struct xen_pool *xp;

	list_for_each_entry(xp, &pools, node) {
		if (!strncmp(xp->name, name, VSHMEM_XEN_NAME))
			return xp;
	}
	return NULL;
}

int list_add_pool(struct xen_pool *xp)
{
	int err = pool_add(&xp->pool);

	if (err)
		return err;
	__module_get(THIS_MODULE);
	list_add_tail(&xp->node, &pools);
	dev_info(&xp->pool.dev, "%llu KiB of domain %u\n", xp->pool.size >> 10,
		 xp->owner);
	return 0;
}

/* In a call by a file of this module, which keeps it loaded. */
void list_remove(struct xen_pool *xp)
{
	struct grant *grant, *next;

	list_del(&xp->node);
	pool_remove(&xp->pool);
	list_for_each_entry_safe(grant, next, &xp->grants, node)
		share_revoke(grant);
	share_detach(xp);
	put_device(&xp->pool.dev);
	module_put(THIS_MODULE);
}

/* The pools that this file serves are served no longer. */
void list_drop_server(struct file *server)
{
	struct xen_pool *xp;

	list_for_each_entry(xp, &pools, node) {
		if (xp->server == server)
			xp->server = NULL;
	}
}
