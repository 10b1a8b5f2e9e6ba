// SPDX-License-Identifier: GPL-2.0
/* The device file of a pool, as ../vshmem_ioctl.h specifies it. */
#include <linux/module.h>
#include <linux/pagemap.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "vshmem_xen.h"

/* VSHMEM_REMAINS in an offset that is counted in pages. */
#define REMAINS_PGOFF ((pgoff_t)(VSHMEM_REMAINS >> PAGE_SHIFT))

struct pool_file {
	struct pool *pool;
	struct file *file;
	struct list_head node; /* in pool.files */
};

static long file_info(struct pool *pool, void __user *arg)
{
	struct vshmem_info info = {
		.abi = VSHMEM_ABI,
		.flags = VSHMEM_DOORBELL | VSHMEM_CACHED | VSHMEM_HAS_REMAINS,
		.size = pool->size,
		.member = pool->self,
		.vectors = 1,
	};

	if (READ_ONCE(pool->gone))
		return -ENODEV;
	return copy_to_user(arg, &info, sizeof(info)) ? -EFAULT : 0;
}

static long file_identify(struct pool *pool, void __user *arg)
{
	if (READ_ONCE(pool->gone))
		return -ENODEV;
	if (copy_to_user(arg, &pool->identity, sizeof(pool->identity)))
		return -EFAULT;
	return 0;
}

static long file_ring(struct pool *pool, void __user *arg)
{
	struct vshmem_ring r;
	long err = 0;

	if (copy_from_user(&r, arg, sizeof(r)))
		return -EFAULT;
	if (r.peer > U16_MAX || r.vector >= U16_MAX)
		return -EINVAL;
	if (r.device && r.device != MINOR(pool->dev.devt) + 1)
		return -EXDEV;
	down_read(&pool->revoke_rwsem);
	if (pool->gone)
		err = -ENODEV;
	else
		share_ring(pool, r.peer);
	up_read(&pool->revoke_rwsem);
	return err;
}

static long file_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	struct pool_file *pf = file->private_data;

	if ((cmd == VSHMEM_WAKE || cmd == VSHMEM_RING) &&
	    !(file->f_mode & FMODE_WRITE))
		return -EBADF;
	switch (cmd) {
	case VSHMEM_INFO:
		return file_info(pf->pool, (void __user *)arg);
	case VSHMEM_WAIT:
		return sleepers_wait(pf->pool, (void __user *)arg);
	case VSHMEM_WAKE:
		return sleepers_wake(pf->pool, (void __user *)arg);
	case VSHMEM_RING:
		return file_ring(pf->pool, (void __user *)arg);
	case VSHMEM_IDENTITY:
		return file_identify(pf->pool, (void __user *)arg);
	}
	return -ENOTTY;
}

/* Mapping */

static int map_page(pte_t *pte, unsigned long addr, void *data)
{
	struct vm_area_struct *vma = data;
	struct pool_file *pf = vma->vm_file->private_data;
	pgoff_t index = linear_page_index(vma, addr) & ~REMAINS_PGOFF;
	struct page *page = pf->pool->pages[index];

	if (pte_none(*pte))
		set_pte_at(vma->vm_mm, addr, pte,
			   pte_mkspecial(pfn_pte(page_to_pfn(page),
						 vma->vm_page_prot)));
	return 0;
}

/* A fault when the pool was taken away. */
static vm_fault_t fault_gone(struct vm_fault *vmf)
{
	if (!(vmf->vma->vm_pgoff & REMAINS_PGOFF))
		return VM_FAULT_SIGBUS;
	vmf->page = alloc_page(GFP_KERNEL_ACCOUNT | __GFP_ZERO);
	return vmf->page ? 0 : VM_FAULT_OOM;
}

/*
 * Maps the 2 MiB around the address, as far as the mapping reaches.
 * vmf_insert_pfn() would take pages of other domains for device memory, and map
 * them uncached.
 */
static vm_fault_t file_fault(struct vm_fault *vmf)
{
	struct vm_area_struct *vma = vmf->vma;
	struct pool_file *pf = vma->vm_file->private_data;
	unsigned long block = ALIGN_DOWN(vmf->address, PMD_SIZE);
	unsigned long start = max(block, vma->vm_start);
	unsigned long end = min(block + PMD_SIZE - 1, vma->vm_end - 1) + 1;
	vm_fault_t ret = VM_FAULT_NOPAGE;

	down_read(&pf->pool->revoke_rwsem);
	if (pf->pool->gone)
		ret = fault_gone(vmf);
	else if (apply_to_page_range(vma->vm_mm, start, end - start, map_page,
				     vma) == -ENOMEM)
		ret = VM_FAULT_OOM;
	up_read(&pf->pool->revoke_rwsem);
	return ret;
}

static const struct vm_operations_struct file_vm_ops = {
	.fault = file_fault,
};

static int file_mmap(struct file *file, struct vm_area_struct *vma)
{
	bool remains = vma->vm_pgoff & REMAINS_PGOFF;
	pgoff_t first = vma->vm_pgoff & ~REMAINS_PGOFF;
	/* A mapping that remains gets pages that are reference-counted. */
	const unsigned long flags = VM_IO | VM_DONTEXPAND | VM_DONTDUMP |
				    (remains ? VM_MIXEDMAP : VM_PFNMAP);
	struct pool_file *pf = file->private_data;
	u64 pages = pf->pool->count;

	if (READ_ONCE(pf->pool->gone))
		return -ENODEV;
	/* A private mapping would copy pages that are not this kernel's. */
	if (!(vma->vm_flags & VM_MAYSHARE) || first >= pages ||
	    vma_pages(vma) > pages - first)
		return -EINVAL;

	vma->vm_ops = &file_vm_ops;
#ifdef HAVE_VM_FLAGS_SET
	vm_flags_set(vma, flags);
#else
	vma->vm_flags |= flags;
#endif
	return 0;
}

static int file_open(struct inode *inode, struct file *file)
{
	struct pool *pool = container_of(inode->i_cdev, struct pool, cdev);
	struct pool_file *pf = kzalloc(sizeof(*pf), GFP_KERNEL);
	int err = 0;

	if (!pf)
		return -ENOMEM;
	pf->pool = pool;
	pf->file = file;
	file->private_data = pf;

	down_write(&pool->revoke_rwsem);
	if (pool->gone)
		err = -ENODEV;
	else
		list_add(&pf->node, &pool->files);
	up_write(&pool->revoke_rwsem);
	if (err)
		kfree(pf);
	return err;
}

static int file_release(struct inode *inode, struct file *file)
{
	struct pool_file *pf = file->private_data;

	down_write(&pf->pool->revoke_rwsem);
	list_del(&pf->node);
	up_write(&pf->pool->revoke_rwsem);
	kfree(pf);
	return 0;
}

const struct file_operations pool_fops = {
	.owner = THIS_MODULE,
	.open = file_open,
	.release = file_release,
	.mmap = file_mmap,
	.unlocked_ioctl = file_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};

/*
 * Ends all mappings and sleeps. No process reaches the memory afterwards;
 * mappings that remain show zeros.
 */
void file_revoke(struct pool *pool)
{
	struct address_space *last = NULL;
	struct pool_file *pf;

	down_write(&pool->revoke_rwsem);
	WRITE_ONCE(pool->gone, true);
	spin_lock_irq(&pool->sleepers.lock);
	pool->sleepers.gone = true;
	spin_unlock_irq(&pool->sleepers.lock);
	sleepers_check(pool, -ENODEV);
	/*
	 * All files that were opened by one name share an address space, and
	 * there may be very many of them.
	 */
	list_for_each_entry(pf, &pool->files, node) {
		if (pf->file->f_mapping == last)
			continue;
		last = pf->file->f_mapping;
		unmap_mapping_range(last, 0, 0, 1);
	}
	up_write(&pool->revoke_rwsem);
}
