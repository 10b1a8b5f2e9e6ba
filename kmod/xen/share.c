// SPDX-License-Identifier: GPL-2.0
/*
 * Sharing pages between domains, and doorbells.
 *
 * The owner has an event channel with each domain that it has granted the pool
 * to. A doorbell event has no sender and no content: a domain that receives one
 * checks the words of its sleepers. So a domain that rings another one's
 * doorbell rings the owner's, whose interrupt passes the event on to all
 * others.
 */
#include <asm/xen/hypercall.h>
#include <linux/slab.h>
#include <xen/page.h>

#include "vshmem_xen.h"

#define REFS_A_PAGE (PAGE_SIZE / sizeof(grant_ref_t))

/* Granting */

/* A domain that has the pool has rung the owner's doorbell. */
static irqreturn_t owner_interrupt(int irq, void *data)
{
	struct grant *from = data, *grant;
	struct xen_pool *xp = from->owned;

	sleepers_check(&xp->pool.sleepers, 0);
	spin_lock(&xp->grants_lock);
	list_for_each_entry(grant, &xp->grants, node) {
		if (grant != from)
			notify_remote_via_irq(grant->irq);
	}
	spin_unlock(&xp->grants_lock);
	xen_irq_lateeoi(irq, 0);
	return IRQ_HANDLED;
}

/* The owner has rung this domain's doorbell. */
static irqreturn_t guest_interrupt(int irq, void *data)
{
	struct xen_pool *xp = data;

	sleepers_check(&xp->pool.sleepers, 0);
	xen_irq_lateeoi(irq, 0);
	return IRQ_HANDLED;
}

/* Takes the port, and returns its interrupt, whose thread is @handler. */
static int bind_port(evtchn_port_t port, irq_handler_t handler, void *data)
{
	struct evtchn_close close = { .port = port };
	int err, irq = bind_evtchn_to_irq_lateeoi(port);

	if (irq < 0) {
		HYPERVISOR_event_channel_op(EVTCHNOP_close, &close);
		return irq;
	}
	err = request_threaded_irq(irq, NULL, handler, IRQF_ONESHOT, NAME,
				   data);
	if (err) {
		unbind_from_irqhandler(irq, data);
		return err;
	}
	return irq;
}

static int open_channel(struct grant *grant)
{
	struct evtchn_alloc_unbound alloc = {
		.dom = DOMID_SELF,
		.remote_dom = grant->domid,
	};
	int err = HYPERVISOR_event_channel_op(EVTCHNOP_alloc_unbound, &alloc);

	if (err)
		return err;
	grant->port = alloc.port;
	grant->irq = bind_port(alloc.port, owner_interrupt, grant);
	return min(grant->irq, 0);
}

/* A grant holds a reference to its page until the page is unmapped everywhere.
 */
static int grant_page(domid_t domid, struct page *page, grant_ref_t *ref)
{
	int got = gnttab_grant_foreign_access(domid, xen_page_to_gfn(page), 0);

	if (got < 0)
		return got;
	get_page(page);
	*ref = got;
	return 0;
}

static int grant_pages(struct grant *grant)
{
	struct xen_pool *xp = grant->owned;
	int err;

	for (; grant->granted < xp->count; grant->granted++) {
		err = grant_page(grant->domid, xp->pages[grant->granted],
				 &grant->refs[grant->granted]);
		if (err)
			return err;
	}
	return 0;
}

static int grant_lists(struct grant *grant)
{
	unsigned int first, count, i;
	struct page *page;
	int err;

	for (first = 0; first < grant->granted; first += REFS_A_PAGE) {
		page = alloc_page(GFP_KERNEL | __GFP_ZERO);
		if (!page)
			return -ENOMEM;
		count = min_t(unsigned int, grant->granted - first,
			      REFS_A_PAGE);
		memcpy(page_address(page), grant->refs + first,
		       count * sizeof(grant_ref_t));
		i = grant->listed;
		err = grant_page(grant->domid, page, &grant->list_refs[i]);
		if (err) {
			__free_page(page);
			return err;
		}
		grant->lists[i] = page;
		grant->listed++;
	}
	return 0;
}

void share_revoke(struct grant *grant)
{
	spin_lock(&grant->owned->grants_lock);
	list_del_init(&grant->node);
	spin_unlock(&grant->owned->grants_lock);
	if (grant->irq > 0)
		unbind_from_irqhandler(grant->irq, grant);
	end_grant(grant);
}

/* Under pools_lock or grants_lock. */
struct grant *share_find(struct xen_pool *xp, domid_t domid)
{
	struct grant *grant;

	list_for_each_entry(grant, &xp->grants, node) {
		if (grant->domid == domid)
			return grant;
	}
	return NULL;
}

struct grant *share_grant(struct xen_pool *xp, domid_t domid)
{
	struct grant *grant = share_find(xp, domid);
	int err;

	if (grant)
		return grant;
	grant = kzalloc(sizeof(*grant), GFP_KERNEL);
	if (!grant)
		return ERR_PTR(-ENOMEM);
	INIT_LIST_HEAD(&grant->node);
	grant->owned = xp;
	grant->domid = domid;
	grant->refs = kvcalloc(xp->count, sizeof(grant_ref_t), GFP_KERNEL);
	err = grant->refs ? grant_pages(grant) : -ENOMEM;
	if (!err)
		err = grant_lists(grant);
	if (!err)
		err = open_channel(grant);
	if (err) {
		share_revoke(grant);
		return ERR_PTR(err);
	}
	spin_lock(&xp->grants_lock);
	list_add_tail(&grant->node, &xp->grants);
	spin_unlock(&xp->grants_lock);
	return grant;
}

/* Mapping */

static unsigned long address_of(struct page *page)
{
	return (unsigned long)pfn_to_kaddr(page_to_pfn(page));
}

/* EIO: some of the pages are still mapped, and must not be used again. */
static int unmap_refs(struct gnttab_unmap_grant_ref *unmap, struct page **pages,
		      unsigned int count)
{
	struct gntab_unmap_queue_data data = {
		.unmap_ops = unmap,
		.pages = pages,
		.count = count,
	};
	unsigned int i;

	for (i = 0; i < count; i++)
		unmap[i].status = GNTST_general_error;
	if (WARN_ON(gnttab_unmap_refs_sync(&data)))
		return -EIO;
	for (i = 0; i < count; i++) {
		if (WARN_ON(unmap[i].status != GNTST_okay))
			return -EIO;
	}
	return 0;
}

/* Unmaps those pages that a failed attempt has mapped. */
static int unmap_some(struct gnttab_map_grant_ref *map,
		      struct gnttab_unmap_grant_ref *unmap, struct page **pages,
		      unsigned int count)
{
	unsigned int i;
	int err = 0;

	for (i = 0; i < count; i++) {
		if (map[i].status == GNTST_okay &&
		    unmap_refs(&unmap[i], &pages[i], 1))
			err = -EIO;
	}
	return err;
}

/*
 * Maps the pages of these references to pages of this kernel. EIO: it failed,
 * and some of the pages are still mapped, and must not be used again.
 */
static int map_refs(domid_t owner, const grant_ref_t *refs, struct page **pages,
		    struct gnttab_unmap_grant_ref *unmap, unsigned int count)
{
	struct gnttab_map_grant_ref *map;
	unsigned int i;
	int err;

	map = kvcalloc(count, sizeof(*map), GFP_KERNEL);
	if (!map)
		return -ENOMEM;
	for (i = 0; i < count; i++) {
		gnttab_set_map_op(&map[i], address_of(pages[i]),
				  GNTMAP_host_map, refs[i], owner);
		map[i].status = GNTST_general_error;
	}
	err = gnttab_map_refs(map, NULL, pages, count) ? -EFAULT : 0;
	for (i = 0; i < count; i++) {
		gnttab_set_unmap_op(&unmap[i], address_of(pages[i]),
				    GNTMAP_host_map, map[i].handle);
		if (!err && map[i].status != GNTST_okay)
			err = -EACCES;
	}
	if (err && unmap_some(map, unmap, pages, count))
		err = -EIO;
	kvfree(map);
	return err;
}

/* Copies one page of references once: its owner may change it at any time. */
static int read_list(domid_t owner, grant_ref_t list, grant_ref_t *refs,
		     unsigned int count)
{
	struct gnttab_unmap_grant_ref unmap;
	struct page *page;
	int err;

	err = gnttab_alloc_pages(1, &page);
	if (err)
		return err;
	err = map_refs(owner, &list, &page, &unmap, 1);
	if (!err) {
		memcpy(refs, page_address(page), count * sizeof(*refs));
		err = unmap_refs(&unmap, &page, 1);
	}
	if (err != -EIO)
		gnttab_free_pages(1, &page);
	return err;
}

static int read_lists(struct xen_pool *xp, const struct vshmem_xen_attach *req,
		      grant_ref_t *refs)
{
	unsigned int i, first, count;
	int err;

	for (i = 0; i < req->count; i++) {
		first = i * REFS_A_PAGE;
		count = min_t(unsigned int, xp->count - first, REFS_A_PAGE);
		err = read_list(xp->owner, req->refs[i], refs + first, count);
		if (err)
			return err;
	}
	return 0;
}

static int map_pool(struct xen_pool *xp, const grant_ref_t *refs)
{
	int err;

	xp->unmap = kvcalloc(xp->count, sizeof(*xp->unmap), GFP_KERNEL);
	if (!xp->unmap)
		return -ENOMEM;
	err = gnttab_alloc_pages(xp->count, xp->pages);
	if (err)
		goto free;
	err = map_refs(xp->owner, refs, xp->pages, xp->unmap, xp->count);
	if (!err)
		return 0;
	if (err != -EIO)
		gnttab_free_pages(xp->count, xp->pages);
free:
	kvfree(xp->unmap);
	xp->unmap = NULL;
	return err;
}

static int bind_channel(struct xen_pool *xp, evtchn_port_t port)
{
	struct evtchn_bind_interdomain bind = {
		.remote_dom = xp->owner,
		.remote_port = port,
	};
	int err = HYPERVISOR_event_channel_op(EVTCHNOP_bind_interdomain, &bind);

	if (err)
		return err;
	xp->port = bind.local_port;
	xp->irq = bind_port(bind.local_port, guest_interrupt, xp);
	return min(xp->irq, 0);
}

/*
 * Whether the owner's end of the event channel exists. It is closed when the
 * pool is withdrawn or the owner dies. A later pool has another channel,
 * perhaps with the same port, to which this one is not bound.
 */
bool share_is_current(struct xen_pool *xp)
{
	struct evtchn_status status = {
		.dom = DOMID_SELF,
		.port = xp->port,
	};

	if (!xp->unmap)
		return false;
	return !HYPERVISOR_event_channel_op(EVTCHNOP_status, &status) &&
	       status.status == EVTCHNSTAT_interdomain;
}

/* After an error share_detach() undoes what was done. */
int share_attach(struct xen_pool *xp, const struct vshmem_xen_attach *req)
{
	grant_ref_t *refs;
	int err;

	if (req->count != DIV_ROUND_UP(xp->count, REFS_A_PAGE))
		return -EINVAL;
	refs = kvcalloc(xp->count, sizeof(*refs), GFP_KERNEL);
	if (!refs)
		return -ENOMEM;
	err = read_lists(xp, req, refs);
	if (!err)
		err = map_pool(xp, refs);
	kvfree(refs);
	if (!err)
		err = bind_channel(xp, req->port);
	return err;
}

/* After all mappings of programs were ended. */
void share_detach(struct xen_pool *xp)
{
	if (xp->irq > 0)
		unbind_from_irqhandler(xp->irq, xp);
	xp->irq = 0;
	if (!xp->unmap)
		return;
	/* Pages that can't be unmapped are never used again. */
	if (!unmap_refs(xp->unmap, xp->pages, xp->count))
		gnttab_free_pages(xp->count, xp->pages);
	kvfree(xp->unmap);
	xp->unmap = NULL;
}

void share_ring(struct xen_pool *xp, u32 peer)
{
	struct grant *grant;

	if (peer == xp->self) {
		sleepers_check(&xp->pool.sleepers, 0);
		return;
	}
	if (!is_owned(xp)) {
		notify_remote_via_irq(xp->irq);
		return;
	}
	spin_lock(&xp->grants_lock);
	grant = share_find(xp, peer);
	if (grant)
		notify_remote_via_irq(grant->irq);
	spin_unlock(&xp->grants_lock);
}
