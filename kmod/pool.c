// SPDX-License-Identifier: GPL-2.0
/* Pools: their device numbers, and adding and removing their device files. */
#include <linux/idr.h>
#include <linux/kdev_t.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/mount.h>
#include <linux/pseudo_fs.h>
#include <linux/random.h>
#include <linux/timekeeping.h>

#include "pool.h"

#define MAX_POOLS 256
#define MAGIC 0x7673686d /* of the file system that has the pools' inodes */

static dev_t devt;
static DEFINE_IDA(minors);
static struct vfsmount *mount;

static int init_fs_context(struct fs_context *fc)
{
	return init_pseudo(fc, MAGIC) ? 0 : -ENOMEM;
}

/* Without an owner: the mount must not keep the module loaded. */
static struct file_system_type file_system = {
	.name = KBUILD_MODNAME,
	.init_fs_context = init_fs_context,
	.kill_sb = kill_anon_super,
};

static void pool_release(struct device *dev)
{
	struct pool *pool = container_of(dev, struct pool, dev);

	iput(pool->inode);
	ida_free(&minors, MINOR(dev->devt));
	pool_free(pool);
}

/*
 * After it put_device() frees the pool; if it fails, the caller does.
 *
 * A copy of a machine may get the same random numbers for a while. But it does
 * this at another time. The caller adds what else distinguishes it.
 */
int pool_init(struct pool *pool)
{
	int number = ida_alloc_max(&minors, MAX_POOLS - 1, GFP_KERNEL);

	if (number < 0)
		return number;
	pool->inode = alloc_anon_inode(mount->mnt_sb);
	if (IS_ERR(pool->inode)) {
		ida_free(&minors, number);
		return PTR_ERR(pool->inode);
	}
	init_rwsem(&pool->revoke_rwsem);
	sleepers_init(&pool->sleepers);
	get_random_bytes(&pool->identity, sizeof(pool->identity));
	pool->identity.id[0] ^= ktime_get_real_ns();
	device_initialize(&pool->dev);
	pool->dev.class = &pool_class;
	pool->dev.release = pool_release;
	pool->dev.devt = MKDEV(MAJOR(devt), number);
	return 0;
}

/* Adds the device file; from then on programs can use it. */
int pool_add(struct pool *pool)
{
	int err;

	cdev_init(&pool->cdev, &pool_fops);
	pool->cdev.owner = THIS_MODULE;
	err = cdev_device_add(&pool->cdev, &pool->dev);
	/* It may have been opened already. */
	if (err)
		pool_revoke(pool);
	return err;
}

/* Ends all mappings and sleeps. No process reaches the memory afterwards. */
void pool_revoke(struct pool *pool)
{
	down_write(&pool->revoke_rwsem);
	WRITE_ONCE(pool->gone, true);
	sleepers_check(&pool->sleepers, -ENODEV);
	unmap_mapping_range(pool->inode->i_mapping, 0, 0, 1);
	up_write(&pool->revoke_rwsem);
}

void pool_remove(struct pool *pool)
{
	cdev_device_del(&pool->cdev, &pool->dev);
	pool_revoke(pool);
}

int pools_init(void)
{
	int err;

	mount = kern_mount(&file_system);
	if (IS_ERR(mount))
		return PTR_ERR(mount);
	err = class_register(&pool_class);
	if (err)
		goto unmount;
	err = alloc_chrdev_region(&devt, 0, MAX_POOLS, pool_class.name);
	if (err)
		goto unregister;
	return 0;

unregister:
	class_unregister(&pool_class);
unmount:
	kern_unmount(mount);
	return err;
}

void pools_exit(void)
{
	unregister_chrdev_region(devt, MAX_POOLS);
	class_unregister(&pool_class);
	ida_destroy(&minors);
	kern_unmount(mount);
}
