// SPDX-License-Identifier: GPL-2.0
/*
 * vshmem: shared memory of the ivshmem PCI device, and waiting on it across
 * kernels. What programs can do with it, and the rules that they have to keep,
 * is in vshmem_ioctl.h.
 *
 * The memory is untrusted: other kernels write to it at any time. The driver
 * only ever reads single 32-bit words of it, and only compares them.
 *
 * Why no wake-up is lost
 *   A sleeper compares its word and joins the table of sleepers in one critical
 *   section of @lock. A waker writes the word, then rings the doorbell; the
 *   interrupt arrives after the word is visible. Its handler takes @lock. If it
 *   does so before the sleeper, the sleeper sees the new word and does not
 *   sleep. If it does so after the sleeper, the handler finds the sleeper in
 *   the table, sees the new word and wakes it. A doorbell that arrives while
 *   the handler runs makes it run again. Several doorbells may be coalesced:
 *   one check of all sleepers answers them all. A resume checks them as well.
 *
 * Why no process reaches the memory of a device that is gone
 *   Faults and doorbells run under @revoke_rwsem, taken for reading, and do
 *   nothing if @gone is set. It is set under @revoke_rwsem, taken for writing,
 *   and all mappings are zapped before that is released. Sleepers and wakers
 *   check @gone under @lock. A fault in a mapping that remains then gets a page
 *   of zeros.
 */

#include <linux/cc_platform.h>
#include <linux/cdev.h>
#include <linux/hash.h>
#include <linux/hrtimer.h>
#include <linux/idr.h>
#include <linux/interrupt.h>
#include <linux/io.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/nospec.h>
#include <linux/pagemap.h>
#include <linux/pci.h>
#include <linux/random.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/time_namespace.h>
#include <linux/timekeeping.h>
#include <linux/uaccess.h>
#ifdef INSERT_PMD_TAKES_PFN_T
#include <linux/pfn_t.h>
#endif

#include "vshmem_ioctl.h"

#define NAME "vshmem"

/* Registers in BAR 0. */
#define REG_IVPOSITION 8
#define REG_DOORBELL 12
#define REGISTERS_SIZE 16
#define MAX_PEER 0xffff
#define MAX_RING_VECTOR 0xfffe

#define BAR_REGISTERS 0
#define BAR_MEMORY 2

#define MAX_DEVICES 256
/* VSHMEM_REMAINS in an offset that is counted in pages. */
#define REMAINS_PGOFF ((pgoff_t)(VSHMEM_REMAINS >> PAGE_SHIFT))
/* All vectors mean the same, so few are enough. */
#define MAX_VECTORS 16
#define TABLE_BITS 6

static bool force_cached = true;
module_param(force_cached, bool, 0444);
MODULE_PARM_DESC(force_cached,
		 "Map write-back even where the firmware's MTRRs say uncached");

struct vshmem {
	struct device dev;
	struct cdev cdev;
	struct pci_dev *pdev;
	void __iomem *registers;
	void *mem;
	phys_addr_t phys;
	u64 size;
	int vectors;
	struct vshmem_identity identity;
	/* User mappings are write-back. */
	bool cached;
	/* And so are the kernel's, by its table of memory types. */
	bool tracked;

	/* @gone for faults and doorbells, @files */
	struct rw_semaphore revoke_rwsem;
	struct list_head files;

	spinlock_t lock; /* @gone for sleepers, @table */
	bool gone;
	struct list_head table[1 << TABLE_BITS]; /* of sleepers, by offset */
};

struct vshmem_file {
	struct vshmem *vd;
	struct file *file;
	struct list_head node; /* in vshmem.files */
};

/* A thread in VSHMEM_WAIT, on its stack. */
struct vshmem_sleeper {
	struct list_head node; /* in vshmem.table, until woken */
	struct task_struct *task;
	u64 offset;
	u32 expected;
	bool woken;
	int result; /* once woken */
};

static struct class vshmem_class = { .name = NAME };
static dev_t vshmem_devt;
static DEFINE_IDA(vshmem_minors);

/*
 * All pages of a mapping have one protection. This kernel's pages, by which the
 * device's are replaced, are write-back, and encrypted in a guest with
 * encrypted memory, where the device's are not.
 */
static bool vshmem_has_remains(struct vshmem *vd)
{
	return vd->cached && !cc_platform_has(CC_ATTR_GUEST_MEM_ENCRYPT);
}

/* Waiting and waking */

static struct list_head *vshmem_bucket(struct vshmem *vd, u64 offset)
{
	return &vd->table[hash_64(offset, TABLE_BITS)];
}

static bool vshmem_is_word(struct vshmem *vd, u64 offset)
{
	return offset < vd->size && IS_ALIGNED(offset, sizeof(u32));
}

static u32 vshmem_read(struct vshmem *vd, u64 offset)
{
	offset = array_index_nospec(offset, vd->size);
	return READ_ONCE(*(u32 *)(vd->mem + offset));
}

/*
 * Under @lock. A sleeper takes @lock before it returns, so it and its task
 * exist until the caller releases it.
 */
static void vshmem_wake_sleeper(struct vshmem_sleeper *s, int result)
{
	list_del(&s->node);
	s->result = result;
	WRITE_ONCE(s->woken, true);
	wake_up_process(s->task);
}

/* Wake those whose word has changed; with an error, all of them. */
static void vshmem_check_sleepers(struct vshmem *vd, int error)
{
	struct vshmem_sleeper *s, *next;
	unsigned long flags;
	int i;

	spin_lock_irqsave(&vd->lock, flags);
	for (i = 0; i < ARRAY_SIZE(vd->table); i++) {
		list_for_each_entry_safe(s, next, &vd->table[i], node) {
			if (error || vshmem_read(vd, s->offset) != s->expected)
				vshmem_wake_sleeper(s, error);
		}
	}
	spin_unlock_irqrestore(&vd->lock, flags);
}

static irqreturn_t vshmem_interrupt(int irq, void *data)
{
	vshmem_check_sleepers(data, 0);
	return IRQ_HANDLED;
}

static int vshmem_enqueue(struct vshmem *vd, struct vshmem_sleeper *s)
{
	int err = 0;

	spin_lock_irq(&vd->lock);
	if (vd->gone)
		err = -ENODEV;
	else if (vshmem_read(vd, s->offset) != s->expected)
		err = -EAGAIN;
	else
		list_add_tail(&s->node, vshmem_bucket(vd, s->offset));
	spin_unlock_irq(&vd->lock);
	return err;
}

/* A wake-up wins over a signal or the deadline at the same time. */
static int vshmem_dequeue(struct vshmem *vd, struct vshmem_sleeper *s, int why)
{
	spin_lock_irq(&vd->lock);
	if (s->woken)
		why = s->result;
	else
		list_del(&s->node);
	spin_unlock_irq(&vd->lock);
	return why;
}

/* A time namespace may have another offset of the clock. */
static ktime_t vshmem_to_host_time(s64 deadline)
{
	struct timespec64 shift = {};

	timens_add_monotonic(&shift);
	return ktime_sub(ns_to_ktime(deadline), timespec64_to_ktime(shift));
}

static int vshmem_sleep(struct vshmem_sleeper *s, ktime_t *deadline)
{
	int why = 0;

	for (;;) {
		set_current_state(TASK_INTERRUPTIBLE | TASK_FREEZABLE);
		if (READ_ONCE(s->woken) || why)
			break;
		if (signal_pending(current))
			/*
			 * EINTR if a handler runs; else, for instance after a
			 * stop, the call is restarted. Its deadline is
			 * absolute, so it stays the same.
			 */
			why = -ERESTARTNOHAND;
		else if (!schedule_hrtimeout_range(deadline,
						   current->timer_slack_ns,
						   HRTIMER_MODE_ABS))
			why = -ETIMEDOUT;
	}
	__set_current_state(TASK_RUNNING);
	return why;
}

static long vshmem_wait(struct vshmem *vd, void __user *arg)
{
	struct vshmem_sleeper s = { .task = current };
	struct vshmem_wait w;
	ktime_t deadline;
	int err;

	if (copy_from_user(&w, arg, sizeof(w)))
		return -EFAULT;
	if (w.flags || w.deadline < VSHMEM_FOREVER ||
	    !vshmem_is_word(vd, w.offset))
		return -EINVAL;
	s.offset = w.offset;
	s.expected = w.expected;

	err = vshmem_enqueue(vd, &s);
	if (err)
		return err;
	if (w.deadline == VSHMEM_FOREVER)
		return vshmem_dequeue(vd, &s, vshmem_sleep(&s, NULL));
	deadline = vshmem_to_host_time(w.deadline);
	return vshmem_dequeue(vd, &s, vshmem_sleep(&s, &deadline));
}

static long vshmem_wake(struct vshmem *vd, void __user *arg)
{
	struct vshmem_sleeper *s, *next;
	struct vshmem_wake w;
	long woken = 0;

	if (copy_from_user(&w, arg, sizeof(w)))
		return -EFAULT;
	if (w.flags || w.count > VSHMEM_ALL || !vshmem_is_word(vd, w.offset))
		return -EINVAL;

	spin_lock_irq(&vd->lock);
	if (vd->gone)
		woken = -ENODEV;
	list_for_each_entry_safe(s, next, vshmem_bucket(vd, w.offset), node) {
		if (woken < 0 || woken == w.count)
			break;
		if (s->offset == w.offset) {
			vshmem_wake_sleeper(s, 0);
			woken++;
		}
	}
	spin_unlock_irq(&vd->lock);
	return woken;
}

static long vshmem_ring(struct vshmem *vd, void __user *arg)
{
	struct vshmem_ring r;
	long err = 0;

	if (copy_from_user(&r, arg, sizeof(r)))
		return -EFAULT;
	if (r.peer > MAX_PEER || r.vector > MAX_RING_VECTOR)
		return -EINVAL;
	if (r.device && r.device != MINOR(vd->dev.devt) + 1)
		return -EXDEV;

	down_read(&vd->revoke_rwsem);
	if (vd->gone)
		err = -ENODEV;
	else if (!vd->vectors)
		err = -EOPNOTSUPP;
	else
		iowrite32(r.peer << 16 | r.vector,
			  vd->registers + REG_DOORBELL);
	up_read(&vd->revoke_rwsem);
	return err;
}

static long vshmem_info(struct vshmem *vd, void __user *arg)
{
	struct vshmem_info info = {
		.abi = VSHMEM_ABI,
		.size = vd->size,
		.member = -1,
		.vectors = vd->vectors,
	};
	u32 position;

	if (vd->cached)
		info.flags |= VSHMEM_CACHED;
	if (vshmem_has_remains(vd))
		info.flags |= VSHMEM_HAS_REMAINS;
	down_read(&vd->revoke_rwsem);
	if (vd->gone) {
		up_read(&vd->revoke_rwsem);
		return -ENODEV;
	}
	strscpy(info.pci, pci_name(vd->pdev), sizeof(info.pci));
	if (vd->vectors) {
		info.flags |= VSHMEM_DOORBELL;
		position = ioread32(vd->registers + REG_IVPOSITION);
		if (position <= MAX_PEER)
			info.member = position;
	}
	up_read(&vd->revoke_rwsem);
	return copy_to_user(arg, &info, sizeof(info)) ? -EFAULT : 0;
}

static long vshmem_identify(struct vshmem *vd, void __user *arg)
{
	if (READ_ONCE(vd->gone))
		return -ENODEV;
	if (copy_to_user(arg, &vd->identity, sizeof(vd->identity)))
		return -EFAULT;
	return 0;
}

static long vshmem_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	struct vshmem_file *vf = file->private_data;

	if ((cmd == VSHMEM_WAKE || cmd == VSHMEM_RING) &&
	    !(file->f_mode & FMODE_WRITE))
		return -EBADF;
	switch (cmd) {
	case VSHMEM_INFO:
		return vshmem_info(vf->vd, (void __user *)arg);
	case VSHMEM_WAIT:
		return vshmem_wait(vf->vd, (void __user *)arg);
	case VSHMEM_WAKE:
		return vshmem_wake(vf->vd, (void __user *)arg);
	case VSHMEM_RING:
		return vshmem_ring(vf->vd, (void __user *)arg);
	case VSHMEM_IDENTITY:
		return vshmem_identify(vf->vd, (void __user *)arg);
	}
	return -ENOTTY;
}

/* Mapping */

static unsigned long vshmem_pfn(struct vm_area_struct *vma, unsigned long addr)
{
	struct vshmem_file *vf = vma->vm_file->private_data;
	pgoff_t page = linear_page_index(vma, addr) & ~REMAINS_PGOFF;

	return PHYS_PFN(vf->vd->phys) + page;
}

/* A fault when the device is gone. */
static vm_fault_t vshmem_fault_gone(struct vm_fault *vmf)
{
	if (!(vmf->vma->vm_pgoff & REMAINS_PGOFF))
		return VM_FAULT_SIGBUS;
	vmf->page = alloc_page(GFP_KERNEL_ACCOUNT | __GFP_ZERO);
	return vmf->page ? 0 : VM_FAULT_OOM;
}

static int vshmem_set_pte(pte_t *pte, unsigned long addr, void *data)
{
	struct vm_area_struct *vma = data;

	if (pte_none(*pte))
		set_pte_at(vma->vm_mm, addr, pte,
			   pte_mkspecial(pfn_pte(vshmem_pfn(vma, addr),
						 vma->vm_page_prot)));
	return 0;
}

/*
 * Maps the 2 MiB around the address, as far as the mapping reaches.
 *
 * vmf_insert_pfn() would use the kernel's table of memory types, which says
 * write-back only where the MTRRs do. Firmware of virtual machines usually puts
 * the BAR of a small pool below 4 GiB, all of which the MTRRs make uncached.
 * Hypervisors use the page tables alone.
 */
static vm_fault_t vshmem_fault(struct vm_fault *vmf)
{
	struct vm_area_struct *vma = vmf->vma;
	struct vshmem_file *vf = vma->vm_file->private_data;
	unsigned long block = ALIGN_DOWN(vmf->address, PMD_SIZE);
	unsigned long start = max(block, vma->vm_start);
	unsigned long end = min(block + PMD_SIZE - 1, vma->vm_end - 1) + 1;
	vm_fault_t ret = VM_FAULT_NOPAGE;

	down_read(&vf->vd->revoke_rwsem);
	if (vf->vd->gone)
		ret = vshmem_fault_gone(vmf);
	else if (apply_to_page_range(vma->vm_mm, start, end - start,
				     vshmem_set_pte, vma) == -ENOMEM)
		ret = VM_FAULT_OOM;
	up_read(&vf->vd->revoke_rwsem);
	return ret;
}

#ifdef CONFIG_ARCH_SUPPORTS_PMD_PFNMAP
static vm_fault_t vshmem_insert_pmd(struct vm_fault *vmf, unsigned long pfn)
{
	bool write = vmf->flags & FAULT_FLAG_WRITE;

#ifdef INSERT_PMD_TAKES_PFN_T
	return vmf_insert_pfn_pmd(vmf, __pfn_to_pfn_t(pfn, PFN_DEV), write);
#else
	return vmf_insert_pfn_pmd(vmf, pfn, write);
#endif
}

static vm_fault_t vshmem_huge_fault(struct vm_fault *vmf, unsigned int order)
{
	struct vm_area_struct *vma = vmf->vma;
	struct vshmem_file *vf = vma->vm_file->private_data;
	unsigned long block = ALIGN_DOWN(vmf->address, PMD_SIZE);
	vm_fault_t ret = VM_FAULT_FALLBACK;
	unsigned long pfn;

	if (order != PMD_ORDER || !vf->vd->tracked || block < vma->vm_start ||
	    block + PMD_SIZE > vma->vm_end)
		return ret;
	pfn = vshmem_pfn(vma, block);
	if (!IS_ALIGNED(pfn, 1UL << PMD_ORDER))
		return ret;

	down_read(&vf->vd->revoke_rwsem);
	if (!vf->vd->gone)
		ret = vshmem_insert_pmd(vmf, pfn);
	up_read(&vf->vd->revoke_rwsem);
	return ret;
}
#endif

static const struct vm_operations_struct vshmem_vm_ops = {
	.fault = vshmem_fault,
#ifdef CONFIG_ARCH_SUPPORTS_PMD_PFNMAP
	.huge_fault = vshmem_huge_fault,
#endif
};

static int vshmem_mmap(struct file *file, struct vm_area_struct *vma)
{
	bool remains = vma->vm_pgoff & REMAINS_PGOFF;
	pgoff_t first = vma->vm_pgoff & ~REMAINS_PGOFF;
	/* A mapping that remains gets pages that are reference-counted. */
	const unsigned long flags = VM_IO | VM_DONTEXPAND | VM_DONTDUMP |
				    (remains ? VM_MIXEDMAP : VM_PFNMAP);
	struct vshmem_file *vf = file->private_data;
	u64 pages = vf->vd->size >> PAGE_SHIFT;

	if (READ_ONCE(vf->vd->gone))
		return -ENODEV;
	/* A private mapping would copy pages that have no struct page. */
	if (!(vma->vm_flags & VM_MAYSHARE) || first >= pages ||
	    vma_pages(vma) > pages - first)
		return -EINVAL;
	if (remains && !vshmem_has_remains(vf->vd))
		return -EINVAL;

	vma->vm_page_prot = pgprot_decrypted(vma->vm_page_prot);
	if (!vf->vd->cached)
		vma->vm_page_prot = pgprot_noncached(vma->vm_page_prot);
	vma->vm_ops = &vshmem_vm_ops;
#ifdef HAVE_VM_FLAGS_SET
	vm_flags_set(vma, flags);
#else
	vma->vm_flags |= flags;
#endif
	return 0;
}

/* The device file */

static int vshmem_open(struct inode *inode, struct file *file)
{
	struct vshmem *vd = container_of(inode->i_cdev, struct vshmem, cdev);
	struct vshmem_file *vf = kzalloc(sizeof(*vf), GFP_KERNEL);
	int err = 0;

	if (!vf)
		return -ENOMEM;
	vf->vd = vd;
	vf->file = file;
	file->private_data = vf;

	down_write(&vd->revoke_rwsem);
	if (vd->gone)
		err = -ENODEV;
	else
		list_add(&vf->node, &vd->files);
	up_write(&vd->revoke_rwsem);
	if (err)
		kfree(vf);
	return err;
}

static int vshmem_release(struct inode *inode, struct file *file)
{
	struct vshmem_file *vf = file->private_data;

	down_write(&vf->vd->revoke_rwsem);
	list_del(&vf->node);
	up_write(&vf->vd->revoke_rwsem);
	kfree(vf);
	return 0;
}

static const struct file_operations vshmem_fops = {
	.owner = THIS_MODULE,
	.open = vshmem_open,
	.release = vshmem_release,
	.mmap = vshmem_mmap,
	.get_unmapped_area = thp_get_unmapped_area,
	.unlocked_ioctl = vshmem_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};

/* The PCI device */

/* Whether memremap() has mapped write-back: it falls back silently. */
static bool vshmem_is_write_back(void *mem)
{
#ifdef CONFIG_X86
	unsigned int level;
	pte_t *pte = lookup_address((unsigned long)mem, &level);

	return pte && !(pte_flags(*pte) & (_PAGE_PCD | _PAGE_PWT));
#else
	return true;
#endif
}

static int vshmem_map_bars(struct vshmem *vd)
{
	struct pci_dev *pdev = vd->pdev;

	vd->phys = pci_resource_start(pdev, BAR_MEMORY);
	vd->size = pci_resource_len(pdev, BAR_MEMORY);
	if (!PAGE_ALIGNED(vd->phys) || !PAGE_ALIGNED(vd->size) || !vd->size ||
	    pci_resource_len(pdev, BAR_REGISTERS) < REGISTERS_SIZE)
		return -ENXIO;

	vd->registers = pci_iomap(pdev, BAR_REGISTERS, 0);
	if (!vd->registers)
		return -ENOMEM;
	vd->mem = memremap(vd->phys, vd->size, MEMREMAP_WB);
	if (!vd->mem) {
		pci_iounmap(pdev, vd->registers);
		return -ENOMEM;
	}
	vd->tracked = vshmem_is_write_back(vd->mem);
	vd->cached = vd->tracked || force_cached;
	return 0;
}

static void vshmem_unmap_bars(struct vshmem *vd)
{
	memunmap(vd->mem);
	pci_iounmap(vd->pdev, vd->registers);
}

/*
 * A copy of a machine may get the same random numbers for a while. But it
 * probes its device at another time, or has another peer id.
 */
static void vshmem_init_identity(struct vshmem *vd)
{
	u64 *id = vd->identity.id;

	get_random_bytes(id, sizeof(vd->identity.id));
	id[0] ^= ktime_get_real_ns();
	id[1] ^= ioread32(vd->registers + REG_IVPOSITION);
}

/* A device without a doorbell has no vectors, which is no error. */
static int vshmem_request_irqs(struct vshmem *vd)
{
	int count = min(pci_msix_vec_count(vd->pdev), MAX_VECTORS);
	int i, err;

	if (count <= 0)
		return 0;
	count = pci_alloc_irq_vectors(vd->pdev, 1, count, PCI_IRQ_MSIX);
	if (count < 0)
		return count;
	for (i = 0; i < count; i++) {
		err = request_irq(pci_irq_vector(vd->pdev, i), vshmem_interrupt,
				  0, dev_name(&vd->dev), vd);
		if (err)
			goto undo;
	}
	vd->vectors = count;
	return 0;
undo:
	while (i--)
		free_irq(pci_irq_vector(vd->pdev, i), vd);
	pci_free_irq_vectors(vd->pdev);
	return err;
}

static void vshmem_free_irqs(struct vshmem *vd)
{
	int i;

	for (i = 0; i < vd->vectors; i++)
		free_irq(pci_irq_vector(vd->pdev, i), vd);
	if (vd->vectors)
		pci_free_irq_vectors(vd->pdev);
}

static void vshmem_free(struct device *dev)
{
	struct vshmem *vd = container_of(dev, struct vshmem, dev);

	ida_free(&vshmem_minors, MINOR(dev->devt) - MINOR(vshmem_devt));
	kfree(vd);
}

static struct vshmem *vshmem_new(struct pci_dev *pdev)
{
	struct vshmem *vd = kzalloc(sizeof(*vd), GFP_KERNEL);
	int i, number;

	if (!vd)
		return ERR_PTR(-ENOMEM);
	number = ida_alloc_max(&vshmem_minors, MAX_DEVICES - 1, GFP_KERNEL);
	if (number < 0) {
		kfree(vd);
		return ERR_PTR(number);
	}
	vd->pdev = pdev;
	init_rwsem(&vd->revoke_rwsem);
	spin_lock_init(&vd->lock);
	INIT_LIST_HEAD(&vd->files);
	for (i = 0; i < ARRAY_SIZE(vd->table); i++)
		INIT_LIST_HEAD(&vd->table[i]);
	cdev_init(&vd->cdev, &vshmem_fops);
	vd->cdev.owner = THIS_MODULE;

	device_initialize(&vd->dev);
	vd->dev.class = &vshmem_class;
	vd->dev.parent = &pdev->dev;
	vd->dev.release = vshmem_free;
	vd->dev.devt = MKDEV(MAJOR(vshmem_devt), MINOR(vshmem_devt) + number);
	if (dev_set_name(&vd->dev, NAME "%d", number)) {
		put_device(&vd->dev);
		return ERR_PTR(-ENOMEM);
	}
	return vd;
}

static int vshmem_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct vshmem *vd = vshmem_new(pdev);
	int err;

	if (IS_ERR(vd))
		return PTR_ERR(vd);
	err = pci_enable_device(pdev);
	if (err)
		goto put;
	err = pci_request_regions(pdev, NAME);
	if (err)
		goto disable;
	err = vshmem_map_bars(vd);
	if (err)
		goto release;
	vshmem_init_identity(vd);
	pci_set_drvdata(pdev, vd);
	pci_set_master(pdev);
	err = vshmem_request_irqs(vd);
	if (err)
		goto unmap;
	err = cdev_device_add(&vd->cdev, &vd->dev);
	if (err)
		goto free_irqs;
	dev_info(&vd->dev, "%llu KiB%s, %d vectors\n", vd->size >> 10,
		 vd->cached ? "" : ", uncached", vd->vectors);
	return 0;

free_irqs:
	vshmem_free_irqs(vd);
unmap:
	vshmem_unmap_bars(vd);
release:
	pci_release_regions(pdev);
disable:
	pci_disable_device(pdev);
put:
	put_device(&vd->dev);
	return err;
}

static void vshmem_revoke(struct vshmem *vd)
{
	struct address_space *last = NULL;
	struct vshmem_file *vf;

	down_write(&vd->revoke_rwsem);
	spin_lock_irq(&vd->lock);
	vd->gone = true;
	spin_unlock_irq(&vd->lock);
	vshmem_check_sleepers(vd, -ENODEV);
	/*
	 * All files that were opened by one name share an address space, and
	 * there may be very many of them.
	 */
	list_for_each_entry(vf, &vd->files, node) {
		if (vf->file->f_mapping == last)
			continue;
		last = vf->file->f_mapping;
		unmap_mapping_range(last, 0, 0, 1);
	}
	up_write(&vd->revoke_rwsem);
}

static void vshmem_remove(struct pci_dev *pdev)
{
	struct vshmem *vd = pci_get_drvdata(pdev);

	cdev_device_del(&vd->cdev, &vd->dev);
	vshmem_revoke(vd);
	vshmem_free_irqs(vd);
	vshmem_unmap_bars(vd);
	pci_release_regions(pdev);
	pci_disable_device(pdev);
	put_device(&vd->dev);
}

/* Doorbells may have been lost while this kernel was suspended. */
static int vshmem_resume(struct device *dev)
{
	vshmem_check_sleepers(dev_get_drvdata(dev), 0);
	return 0;
}

static DEFINE_SIMPLE_DEV_PM_OPS(vshmem_pm_ops, NULL, vshmem_resume);

static const struct pci_device_id vshmem_ids[] = {
	{ PCI_DEVICE(PCI_VENDOR_ID_REDHAT_QUMRANET, 0x1110) },
	{},
};
MODULE_DEVICE_TABLE(pci, vshmem_ids);

static struct pci_driver vshmem_driver = {
	.name = NAME,
	.id_table = vshmem_ids,
	.probe = vshmem_probe,
	.remove = vshmem_remove,
	.driver.pm = pm_sleep_ptr(&vshmem_pm_ops),
};

static int __init vshmem_init(void)
{
	int err = alloc_chrdev_region(&vshmem_devt, 0, MAX_DEVICES, NAME);

	if (err)
		return err;
	err = class_register(&vshmem_class);
	if (err)
		goto unregister;
	err = pci_register_driver(&vshmem_driver);
	if (err)
		goto destroy;
	return 0;

destroy:
	class_unregister(&vshmem_class);
unregister:
	unregister_chrdev_region(vshmem_devt, MAX_DEVICES);
	return err;
}
module_init(vshmem_init);

static void __exit vshmem_exit(void)
{
	pci_unregister_driver(&vshmem_driver);
	class_unregister(&vshmem_class);
	unregister_chrdev_region(vshmem_devt, MAX_DEVICES);
	ida_destroy(&vshmem_minors);
}
module_exit(vshmem_exit);

MODULE_DESCRIPTION("Shared memory between virtual machines (ivshmem)");
MODULE_AUTHOR("The Vshmem developers");
MODULE_LICENSE("GPL");
/*
 * The version of the set of calls, raised when the library needs another one.
 * vshmem up loads no driver of another version.
 */
MODULE_INFO(vshmem_calls, "2");
