// SPDX-License-Identifier: GPL-2.0
/* The device file of a pool, as vshmem_ioctl.h specifies it. */
#include <linux/cc_platform.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/pagemap.h>
#include <linux/uaccess.h>
#ifdef INSERT_PMD_TAKES_PFN_T
#include <linux/pfn_t.h>
#endif

#include "pool.h"

/* VSHMEM_REMAINS in an offset that is counted in pages. */
#define REMAINS_PGOFF ((pgoff_t)(VSHMEM_REMAINS >> PAGE_SHIFT))
#define MAX_PEER 0xffff
#define MAX_VECTOR 0xfffe

/*
 * All pages of a mapping have one protection. This kernel's pages, by which the
 * pool's are replaced, are write-back, and encrypted in a guest with encrypted
 * memory, where the pool's are not.
 */
static bool has_remains(struct pool *pool)
{
	return pool->cached && !cc_platform_has(CC_ATTR_GUEST_MEM_ENCRYPT);
}

/* The calls */

static long file_info(struct pool *pool, void __user *arg)
{
	struct vshmem_info info = {
		.abi = VSHMEM_ABI,
		.size = pool->size,
		.member = -1,
		.vectors = pool->vectors,
	};
	bool gone;

	if (pool->vectors)
		info.flags |= VSHMEM_DOORBELL;
	if (pool->cached)
		info.flags |= VSHMEM_CACHED;
	if (has_remains(pool))
		info.flags |= VSHMEM_HAS_REMAINS;
	down_read(&pool->revoke_rwsem);
	gone = pool->gone;
	if (!gone)
		pool_describe(pool, &info);
	up_read(&pool->revoke_rwsem);
	if (gone)
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
	struct vshmem_ring ring;
	long err = 0;

	if (copy_from_user(&ring, arg, sizeof(ring)))
		return -EFAULT;
	if (ring.peer > MAX_PEER || ring.vector > MAX_VECTOR)
		return -EINVAL;
	if (ring.device && ring.device != MINOR(pool->dev.devt) + 1)
		return -EXDEV;
	down_read(&pool->revoke_rwsem);
	if (pool->gone)
		err = -ENODEV;
	else if (!pool->vectors)
		err = -EOPNOTSUPP;
	else
		pool_ring(pool, &ring);
	up_read(&pool->revoke_rwsem);
	return err;
}

static long file_ioctl(struct file *file, unsigned int cmd,
		       unsigned long number)
{
	struct pool *pool = file->private_data;
	void __user *arg = (void __user *)number;

	if ((cmd == VSHMEM_WAKE || cmd == VSHMEM_RING) &&
	    !(file->f_mode & FMODE_WRITE))
		return -EBADF;
	switch (cmd) {
	case VSHMEM_INFO:
		return file_info(pool, arg);
	case VSHMEM_WAIT:
		return sleepers_wait(pool, arg);
	case VSHMEM_WAKE:
		return sleepers_wake(pool, arg);
	case VSHMEM_RING:
		return file_ring(pool, arg);
	case VSHMEM_IDENTITY:
		return file_identify(pool, arg);
	}
	return -ENOTTY;
}

/* Mapping */

static unsigned long pfn_at(struct vm_area_struct *vma, unsigned long addr)
{
	return pool_pfn(vma->vm_file->private_data,
			linear_page_index(vma, addr) & ~REMAINS_PGOFF);
}

/* A fault when the pool is gone. */
static vm_fault_t fault_gone(struct vm_fault *vmf)
{
	if (!(vmf->vma->vm_pgoff & REMAINS_PGOFF))
		return VM_FAULT_SIGBUS;
	vmf->page = alloc_page(GFP_KERNEL_ACCOUNT | __GFP_ZERO);
	return vmf->page ? 0 : VM_FAULT_OOM;
}

static int map_page(pte_t *pte, unsigned long addr, void *data)
{
	struct vm_area_struct *vma = data;

	if (pte_none(*pte))
		set_pte_at(vma->vm_mm, addr, pte,
			   pte_mkspecial(pfn_pte(pfn_at(vma, addr),
						 vma->vm_page_prot)));
	return 0;
}

/*
 * Maps the 2 MiB around the address, as far as the mapping reaches.
 *
 * The page table entries are made here, as i915's fault handlers make theirs:
 * vmf_insert_pfn() and the like take the memory type from the kernel's table.
 * That says write-back only where the MTRRs do, and for no page of another Xen
 * domain. Firmware of virtual machines usually puts the BAR of a small pool
 * below 4 GiB, all of which the MTRRs make uncached. Hypervisors use the page
 * tables alone.
 */
static vm_fault_t file_fault(struct vm_fault *vmf)
{
	struct vm_area_struct *vma = vmf->vma;
	struct pool *pool = vma->vm_file->private_data;
	unsigned long block = ALIGN_DOWN(vmf->address, PMD_SIZE);
	unsigned long start = max(block, vma->vm_start);
	unsigned long end = min(block + PMD_SIZE - 1, vma->vm_end - 1) + 1;
	vm_fault_t ret = VM_FAULT_NOPAGE;

	down_read(&pool->revoke_rwsem);
	if (pool->gone)
		ret = fault_gone(vmf);
	else if (apply_to_page_range(vma->vm_mm, start, end - start, map_page,
				     vma) == -ENOMEM)
		ret = VM_FAULT_OOM;
	up_read(&pool->revoke_rwsem);
	return ret;
}

#ifdef CONFIG_ARCH_SUPPORTS_PMD_PFNMAP
static vm_fault_t insert_pmd(struct vm_fault *vmf, unsigned long pfn)
{
	bool write = vmf->flags & FAULT_FLAG_WRITE;

#ifdef INSERT_PMD_TAKES_PFN_T
	return vmf_insert_pfn_pmd(vmf, __pfn_to_pfn_t(pfn, PFN_DEV), write);
#else
	return vmf_insert_pfn_pmd(vmf, pfn, write);
#endif
}

static vm_fault_t file_huge_fault(struct vm_fault *vmf, unsigned int order)
{
	struct vm_area_struct *vma = vmf->vma;
	struct pool *pool = vma->vm_file->private_data;
	unsigned long block = ALIGN_DOWN(vmf->address, PMD_SIZE);
	vm_fault_t ret = VM_FAULT_FALLBACK;
	unsigned long pfn;

	if (order != PMD_ORDER || !pool->huge || block < vma->vm_start ||
	    block + PMD_SIZE > vma->vm_end)
		return ret;
	pfn = pfn_at(vma, block);
	if (!IS_ALIGNED(pfn, 1UL << PMD_ORDER))
		return ret;

	down_read(&pool->revoke_rwsem);
	if (!pool->gone)
		ret = insert_pmd(vmf, pfn);
	up_read(&pool->revoke_rwsem);
	return ret;
}
#endif

static const struct vm_operations_struct file_vm_ops = {
	.fault = file_fault,
#ifdef CONFIG_ARCH_SUPPORTS_PMD_PFNMAP
	.huge_fault = file_huge_fault,
#endif
};

static int file_mmap(struct file *file, struct vm_area_struct *vma)
{
	bool remains = vma->vm_pgoff & REMAINS_PGOFF;
	pgoff_t first = vma->vm_pgoff & ~REMAINS_PGOFF;
	/* A mapping that remains gets pages that are reference-counted. */
	const unsigned long flags = VM_IO | VM_DONTEXPAND | VM_DONTDUMP |
				    (remains ? VM_MIXEDMAP : VM_PFNMAP);
	struct pool *pool = file->private_data;
	u64 pages = pool->size >> PAGE_SHIFT;

	if (READ_ONCE(pool->gone))
		return -ENODEV;
	/* A private mapping would copy pages that are not this kernel's. */
	if (!(vma->vm_flags & VM_MAYSHARE) || first >= pages ||
	    vma_pages(vma) > pages - first)
		return -EINVAL;
	if (remains && !has_remains(pool))
		return -EINVAL;

	vma->vm_page_prot = pgprot_decrypted(vma->vm_page_prot);
	if (!pool->cached)
		vma->vm_page_prot = pgprot_noncached(vma->vm_page_prot);
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

	if (READ_ONCE(pool->gone))
		return -ENODEV;
	file->private_data = pool;
	file->f_mapping = pool->inode->i_mapping;
	return 0;
}

const struct file_operations pool_fops = {
	.owner = THIS_MODULE,
	.open = file_open,
	.mmap = file_mmap,
	.get_unmapped_area = thp_get_unmapped_area,
	.unlocked_ioctl = file_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};
