// SPDX-License-Identifier: GPL-2.0
/*
 * vshmem_xen: pools that Xen domains share. The domain that owns a pool grants
 * its pages to others. Each domain has the pool as a device file, with the
 * calls of the driver for ivshmem (../vshmem_ioctl.h).
 *
 * User space (`vshmem xen`) decides which domain gets which pool, and announces
 * it; the calls for that are in vshmem_xen_ioctl.h.
 */
#include <linux/capability.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/uaccess.h>
#include <xen/features.h>
#include <xen/xen.h>

#include "vshmem_xen.h"

/* Each begins with the pool's name. */
union request {
	struct vshmem_xen_name name;
	struct vshmem_xen_create create;
	struct vshmem_xen_grant grant;
	struct vshmem_xen_attach attach;
};

static long create(struct xen_pool *xp, const struct vshmem_xen_create *req)
{
	int err;

	if (req->self >= DOMID_FIRST_RESERVED)
		return -EINVAL;
	if (xp)
		return -EEXIST;
	xp = list_new(req->name, req->size, req->self, req->self);
	if (IS_ERR(xp))
		return PTR_ERR(xp);
	err = list_fill(xp);
	if (!err)
		err = list_add_pool(xp);
	if (err)
		put_device(&xp->pool.dev);
	return err;
}

static long attach(struct xen_pool *xp, const struct vshmem_xen_attach *req)
{
	int err;

	if (!xen_feature(XENFEAT_auto_translated_physmap))
		return -EOPNOTSUPP;
	if (req->self >= DOMID_FIRST_RESERVED ||
	    req->owner >= DOMID_FIRST_RESERVED || req->owner == req->self ||
	    req->count > VSHMEM_XEN_LISTS)
		return -EINVAL;
	if (xp) {
		if (xp->owner != req->owner)
			return -EBUSY;
		if (share_is_current(xp))
			return -EEXIST;
		/* Its owner has withdrawn it, and created another one. */
		list_remove(xp);
	}
	xp = list_new(req->name, req->size, req->self, req->owner);
	if (IS_ERR(xp))
		return PTR_ERR(xp);
	err = share_attach(xp, req);
	if (!err)
		err = list_add_pool(xp);
	if (err) {
		share_detach(xp);
		put_device(&xp->pool.dev);
	}
	return err;
}

static long grant(struct xen_pool *xp, struct vshmem_xen_grant *req)
{
	struct grant *grant;

	if (req->domid >= DOMID_FIRST_RESERVED || req->domid == xp->self)
		return -EINVAL;
	grant = share_grant(xp, req->domid);
	if (IS_ERR(grant))
		return PTR_ERR(grant);
	req->port = grant->port;
	req->count = grant->listed;
	memcpy(req->refs, grant->list_refs, sizeof(req->refs));
	return 0;
}

static long revoke(struct xen_pool *xp, u32 domid)
{
	struct grant *grant = share_find(xp, domid);

	if (!grant)
		return -ENOENT;
	share_revoke(grant);
	return 0;
}

/* The next domain, by id, that the pool is granted to. */
static u32 granted(struct xen_pool *xp, u32 from)
{
	u32 next = VSHMEM_XEN_NOBODY;
	struct grant *grant;

	list_for_each_entry(grant, &xp->grants, node) {
		if (grant->domid >= from && grant->domid < next)
			next = grant->domid;
	}
	return next;
}

static long claim(struct xen_pool *xp, struct file *file)
{
	if (xp->server && xp->server != file)
		return -EBUSY;
	xp->server = file;
	return 0;
}

/* Under pools_lock. */
static long carry_out(struct file *file, unsigned int cmd, union request *req)
{
	struct xen_pool *xp = list_find(req->name.name);

	if (cmd == VSHMEM_XEN_CREATE)
		return create(xp, &req->create);
	if (cmd == VSHMEM_XEN_ATTACH)
		return attach(xp, &req->attach);
	if (!xp)
		return -ENOENT;
	if (cmd == VSHMEM_XEN_REMOVE) {
		if (xp->owner != req->name.domid)
			return -EPERM;
		list_remove(xp);
		return 0;
	}
	if (!is_owned(xp))
		return -EPERM;
	switch (cmd) {
	case VSHMEM_XEN_GRANT:
		return grant(xp, &req->grant);
	case VSHMEM_XEN_REVOKE:
		return revoke(xp, req->name.domid);
	case VSHMEM_XEN_GRANTED:
		req->name.domid = granted(xp, req->name.domid);
		return 0;
	case VSHMEM_XEN_CLAIM:
		return claim(xp, file);
	}
	return -ENOTTY;
}

static long control(struct file *file, unsigned int cmd, unsigned long number)
{
	void __user *arg = (void __user *)number;
	union request req = {};
	long ret;

	if (!capable(CAP_SYS_ADMIN))
		return -EPERM;
	if (_IOC_TYPE(cmd) != VSHMEM_XEN_IOCTL_TYPE ||
	    _IOC_SIZE(cmd) > sizeof(req))
		return -ENOTTY;
	if (copy_from_user(&req, arg, _IOC_SIZE(cmd)))
		return -EFAULT;
	if (mutex_lock_interruptible(&pools_lock))
		return -ERESTARTSYS;
	ret = carry_out(file, cmd, &req);
	mutex_unlock(&pools_lock);
	if (!ret && _IOC_DIR(cmd) & _IOC_READ &&
	    copy_to_user(arg, &req, _IOC_SIZE(cmd)))
		return -EFAULT;
	return ret;
}

static int control_release(struct inode *inode, struct file *file)
{
	mutex_lock(&pools_lock);
	list_drop_server(file);
	mutex_unlock(&pools_lock);
	return 0;
}

static const struct file_operations control_fops = {
	.owner = THIS_MODULE,
	.release = control_release,
	.unlocked_ioctl = control,
	.compat_ioctl = compat_ptr_ioctl,
};

static struct miscdevice control_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = NAME "-control",
	.fops = &control_fops,
	.mode = 0600,
};

static int __init vshmem_xen_init(void)
{
	int err;

	if (!xen_domain())
		return -ENODEV;
	err = pools_init();
	if (err)
		return err;
	err = misc_register(&control_device);
	if (err)
		pools_exit();
	return err;
}
module_init(vshmem_xen_init);

/* Not while there is a pool. */
static void __exit vshmem_xen_exit(void)
{
	misc_deregister(&control_device);
	end_wait();
	pools_exit();
}
module_exit(vshmem_xen_exit);

MODULE_DESCRIPTION("Shared memory between Xen domains");
MODULE_AUTHOR("The Vshmem developers");
MODULE_LICENSE("GPL");
/*
 * The version of the set of calls, raised when the library needs another one.
 * vshmem up loads no driver of another version.
 */
MODULE_INFO(vshmem_calls, "2");
