// SPDX-License-Identifier: GPL-2.0
/*
 * vshmem: a machine's ivshmem PCI devices, each of which shows it a pool. What
 * programs can do with it is in vshmem_ioctl.h.
 */
#include <linux/io.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/slab.h>

#include "pool.h"

#define NAME "vshmem"

/* Registers in BAR 0. */
#define REG_IVPOSITION 8
#define REG_DOORBELL 12
#define REGISTERS_SIZE 16
#define MAX_PEER 0xffff

#define BAR_REGISTERS 0
#define BAR_MEMORY 2

/* All vectors mean the same, so few are enough. */
#define MAX_VECTORS 16

static bool force_cached = true;
module_param(force_cached, bool, 0444);
MODULE_PARM_DESC(force_cached,
		 "Map write-back even where the firmware's MTRRs say uncached");

struct vshmem {
	struct pool pool;
	struct pci_dev *pdev;
	void __iomem *registers;
	void *mem;
	phys_addr_t phys;
};

struct class pool_class = { .name = NAME };

static struct vshmem *to_vshmem(struct pool *pool)
{
	return container_of(pool, struct vshmem, pool);
}

void pool_free(struct pool *pool)
{
	kfree(to_vshmem(pool));
}

unsigned long pool_pfn(struct pool *pool, pgoff_t page)
{
	return PHYS_PFN(to_vshmem(pool)->phys) + page;
}

void *pool_address(struct pool *pool, u64 offset)
{
	return to_vshmem(pool)->mem + offset;
}

void pool_ring(struct pool *pool, const struct vshmem_ring *ring)
{
	iowrite32(ring->peer << 16 | ring->vector,
		  to_vshmem(pool)->registers + REG_DOORBELL);
}

void pool_describe(struct pool *pool, struct vshmem_info *info)
{
	struct vshmem *vd = to_vshmem(pool);
	u32 position;

	strscpy(info->pci, pci_name(vd->pdev), sizeof(info->pci));
	if (!pool->vectors)
		return;
	position = ioread32(vd->registers + REG_IVPOSITION);
	if (position <= MAX_PEER)
		info->member = position;
}

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
	u64 size = pci_resource_len(vd->pdev, BAR_MEMORY);
	int err;

	vd->phys = pci_resource_start(vd->pdev, BAR_MEMORY);
	if (!PAGE_ALIGNED(vd->phys) || !PAGE_ALIGNED(size) || !size ||
	    pci_resource_len(vd->pdev, BAR_REGISTERS) < REGISTERS_SIZE)
		return -ENXIO;

	err = pcim_iomap_regions(vd->pdev, BIT(BAR_REGISTERS), NAME);
	if (err)
		return err;
	vd->registers = pcim_iomap_table(vd->pdev)[BAR_REGISTERS];
	if (!devm_request_mem_region(&vd->pdev->dev, vd->phys, size, NAME))
		return -EBUSY;
	vd->mem = devm_memremap(&vd->pdev->dev, vd->phys, size, MEMREMAP_WB);
	if (IS_ERR(vd->mem))
		return PTR_ERR(vd->mem);
	vd->pool.size = size;
	vd->pool.huge = vshmem_is_write_back(vd->mem);
	vd->pool.cached = vd->pool.huge || force_cached;
	return 0;
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
		err = devm_request_threaded_irq(
			&vd->pdev->dev, pci_irq_vector(vd->pdev, i),
			sleepers_interrupt, sleepers_thread, 0,
			dev_name(&vd->pool.dev), &vd->pool.sleepers);
		if (err)
			return err;
	}
	vd->pool.vectors = count;
	return 0;
}

static void vshmem_put(void *data)
{
	struct vshmem *vd = data;

	put_device(&vd->pool.dev);
}

/* What was requested for the PCI device is released when it is gone. */
static int vshmem_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct vshmem *vd = kzalloc(sizeof(*vd), GFP_KERNEL);
	struct pool *pool;
	int err;

	if (!vd)
		return -ENOMEM;
	vd->pdev = pdev;
	pool = &vd->pool;
	err = pool_init(pool);
	if (err) {
		kfree(vd);
		return err;
	}
	err = devm_add_action_or_reset(&pdev->dev, vshmem_put, vd);
	if (err)
		return err;
	pool->dev.parent = &pdev->dev;
	err = dev_set_name(&pool->dev, NAME "%d", MINOR(pool->dev.devt));
	if (!err)
		err = pcim_enable_device(pdev);
	if (!err)
		err = vshmem_map_bars(vd);
	if (err)
		return err;
	pool->identity.id[1] ^= ioread32(vd->registers + REG_IVPOSITION);
	pci_set_drvdata(pdev, vd);
	pci_set_master(pdev);
	err = vshmem_request_irqs(vd);
	if (!err)
		err = pool_add(pool);
	if (err)
		return err;
	dev_info(&pool->dev, "%llu KiB%s, %u vectors\n", pool->size >> 10,
		 pool->cached ? "" : ", uncached", pool->vectors);
	return 0;
}

static void vshmem_remove(struct pci_dev *pdev)
{
	struct vshmem *vd = pci_get_drvdata(pdev);

	pool_remove(&vd->pool);
}

/* Doorbells may have been lost while this kernel was suspended. */
static int vshmem_resume(struct device *dev)
{
	struct vshmem *vd = dev_get_drvdata(dev);

	sleepers_check(&vd->pool.sleepers, 0);
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
	int err = pools_init();

	if (err)
		return err;
	err = pci_register_driver(&vshmem_driver);
	if (err)
		pools_exit();
	return err;
}
module_init(vshmem_init);

static void __exit vshmem_exit(void)
{
	pci_unregister_driver(&vshmem_driver);
	pools_exit();
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
