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

/* Under pools_lock. */
static long add_or_put(struct pool *pool, int err)
{
	if (!err)
		err = pool_find(pool->name) ? -EEXIST : pool_add(pool);
	if (err) {
		/* Its file may have been opened already. */
		file_revoke(pool);
		if (!pool_is_owned(pool))
			share_detach(pool);
		put_device(&pool->dev);
	}
	return err;
}

static long create(void __user *arg)
{
	struct vshmem_xen_create req;
	struct pool *pool;

	if (copy_from_user(&req, arg, sizeof(req)))
		return -EFAULT;
	if (req.self >= DOMID_FIRST_RESERVED)
		return -EINVAL;
	if (pool_find(req.name))
		return -EEXIST;
	pool = pool_new(req.name, req.size, req.self, req.self);
	if (IS_ERR(pool))
		return PTR_ERR(pool);
	return add_or_put(pool, pool_fill(pool));
}

static struct pool *owned(const char *name)
{
	struct pool *pool = pool_find(name);

	if (!pool)
		return ERR_PTR(-ENOENT);
	return pool_is_owned(pool) ? pool : ERR_PTR(-EPERM);
}

static long grant(void __user *arg)
{
	struct vshmem_xen_grant req;
	struct grant *grant;
	struct pool *pool;

	if (copy_from_user(&req, arg, sizeof(req)))
		return -EFAULT;
	pool = owned(req.name);
	if (IS_ERR(pool))
		return PTR_ERR(pool);
	if (req.domid >= DOMID_FIRST_RESERVED || req.domid == pool->self)
		return -EINVAL;
	grant = share_grant(pool, req.domid);
	if (IS_ERR(grant))
		return PTR_ERR(grant);
	req.port = grant->port;
	req.count = grant->listed;
	memcpy(req.refs, grant->list_refs, sizeof(req.refs));
	return copy_to_user(arg, &req, sizeof(req)) ? -EFAULT : 0;
}

static long attach(void __user *arg)
{
	struct vshmem_xen_attach req;
	struct pool *pool;

	if (copy_from_user(&req, arg, sizeof(req)))
		return -EFAULT;
	if (!xen_feature(XENFEAT_auto_translated_physmap))
		return -EOPNOTSUPP;
	if (req.self >= DOMID_FIRST_RESERVED ||
	    req.owner >= DOMID_FIRST_RESERVED || req.owner == req.self ||
	    req.count > VSHMEM_XEN_LISTS)
		return -EINVAL;
	pool = pool_find(req.name);
	if (pool) {
		if (pool->owner != req.owner)
			return -EBUSY;
		if (share_is_current(pool))
			return -EEXIST;
		/* Its owner has withdrawn it, and created another one. */
		pool_remove(pool);
	}
	pool = pool_new(req.name, req.size, req.self, req.owner);
	if (IS_ERR(pool))
		return PTR_ERR(pool);
	return add_or_put(pool, share_attach(pool, &req));
}

static long revoke(void __user *arg)
{
	struct vshmem_xen_name req;
	struct grant *grant;
	struct pool *pool;

	if (copy_from_user(&req, arg, sizeof(req)))
		return -EFAULT;
	pool = owned(req.name);
	if (IS_ERR(pool))
		return PTR_ERR(pool);
	list_for_each_entry(grant, &pool->grants, node) {
		if (grant->domid == req.domid) {
			share_revoke(grant);
			return 0;
		}
	}
	return -ENOENT;
}

/* The next domain, by id, that the pool is granted to. */
static long granted(void __user *arg)
{
	struct vshmem_xen_name req;
	u32 next = VSHMEM_XEN_NOBODY;
	struct grant *grant;
	struct pool *pool;

	if (copy_from_user(&req, arg, sizeof(req)))
		return -EFAULT;
	pool = owned(req.name);
	if (IS_ERR(pool))
		return PTR_ERR(pool);
	list_for_each_entry(grant, &pool->grants, node) {
		if (grant->domid >= req.domid && grant->domid < next)
			next = grant->domid;
	}
	req.domid = next;
	return copy_to_user(arg, &req, sizeof(req)) ? -EFAULT : 0;
}

static long remove(void __user *arg)
{
	struct vshmem_xen_name req;
	struct pool *pool;

	if (copy_from_user(&req, arg, sizeof(req)))
		return -EFAULT;
	pool = pool_find(req.name);
	if (!pool)
		return -ENOENT;
	if (pool->owner != req.domid)
		return -EPERM;
	pool_remove(pool);
	return 0;
}

static long claim(struct file *file, void __user *arg)
{
	struct vshmem_xen_name req;
	struct pool *pool;

	if (copy_from_user(&req, arg, sizeof(req)))
		return -EFAULT;
	pool = owned(req.name);
	if (IS_ERR(pool))
		return PTR_ERR(pool);
	if (pool->server && pool->server != file)
		return -EBUSY;
	pool->server = file;
	return 0;
}

static int control_release(struct inode *inode, struct file *file)
{
	mutex_lock(&pools_lock);
	pools_drop_server(file);
	mutex_unlock(&pools_lock);
	return 0;
}

static long control(struct file *file, unsigned int cmd, unsigned long number)
{
	void __user *arg = (void __user *)number;
	long ret = -ENOTTY;

	if (!capable(CAP_SYS_ADMIN))
		return -EPERM;
	if (mutex_lock_interruptible(&pools_lock))
		return -ERESTARTSYS;
	switch (cmd) {
	case VSHMEM_XEN_CREATE:
		ret = create(arg);
		break;
	case VSHMEM_XEN_GRANT:
		ret = grant(arg);
		break;
	case VSHMEM_XEN_ATTACH:
		ret = attach(arg);
		break;
	case VSHMEM_XEN_REVOKE:
		ret = revoke(arg);
		break;
	case VSHMEM_XEN_REMOVE:
		ret = remove(arg);
		break;
	case VSHMEM_XEN_GRANTED:
		ret = granted(arg);
		break;
	case VSHMEM_XEN_CLAIM:
		ret = claim(file, arg);
		break;
	}
	mutex_unlock(&pools_lock);
	return ret;
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

static void __exit vshmem_xen_exit(void)
{
	misc_deregister(&control_device);
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
