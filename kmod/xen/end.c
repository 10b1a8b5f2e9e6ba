// SPDX-License-Identifier: GPL-2.0
/*
 * Ending grants. A page that the other domain still has mapped stays granted
 * until that domain has unmapped it or is gone, so ending it is tried once a
 * second. The kernel's own list of such grants (gnttab_end_foreign_access)
 * tries ten entries a second: a pool of 16 MiB would keep its part of the grant
 * table for minutes after the other domain was destroyed.
 *
 * Until then the grant holds references to the pool's memory and to the module.
 */
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/workqueue.h>

#include "vshmem_xen.h"

/* No page has this reference: the first ones are Xen's own. */
#define ENDED 0

static void try_again(struct work_struct *work);

static LIST_HEAD(ending); /* of grants, under pools_lock */
static DECLARE_DELAYED_WORK(trying, try_again);

/* Ends the grants that can be. Returns how many pages are still mapped. */
static unsigned int end_refs(grant_ref_t *refs, struct page **pages,
			     unsigned int count)
{
	unsigned int i, left = 0;

	for (i = 0; i < count; i++) {
		if (refs[i] == ENDED)
			continue;
		if (gnttab_try_end_foreign_access(refs[i])) {
			refs[i] = ENDED;
			put_page(pages[i]);
		} else {
			left++;
		}
		cond_resched();
	}
	return left;
}

/* Frees a grant of which nothing is mapped any more. */
static bool end_all(struct grant *grant)
{
	unsigned int i;

	if (end_refs(grant->list_refs, grant->lists, grant->listed) +
	    end_refs(grant->refs, grant->owned->pages, grant->granted))
		return false;
	for (i = 0; i < grant->listed; i++)
		__free_page(grant->lists[i]);
	kvfree(grant->refs);
	kfree(grant);
	return true;
}

static void try_again(struct work_struct *work)
{
	struct grant *grant, *next;
	struct xen_pool *xp;

	mutex_lock(&pools_lock);
	list_for_each_entry_safe(grant, next, &ending, node) {
		xp = grant->owned;
		list_del(&grant->node);
		if (!end_all(grant)) {
			list_add(&grant->node, &ending);
			continue;
		}
		put_device(&xp->pool.dev);
		/* end_wait() is called before the module goes. */
		module_put(THIS_MODULE);
	}
	if (!list_empty(&ending))
		schedule_delayed_work(&trying, HZ);
	mutex_unlock(&pools_lock);
}

/* Under pools_lock. Takes the grant, which is in no list. */
void end_grant(struct grant *grant)
{
	if (end_all(grant))
		return;
	get_device(&grant->owned->pool.dev);
	__module_get(THIS_MODULE);
	list_add_tail(&grant->node, &ending);
	schedule_delayed_work(&trying, HZ);
}

/* When nothing holds the module any more, the work may still be returning. */
void end_wait(void)
{
	cancel_delayed_work_sync(&trying);
}
