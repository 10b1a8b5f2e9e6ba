/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * vshmem_xen_ioctl.h: creating, granting and attaching pools in a Xen domain by
 * /dev/vshmem-xen-control, for Vshmem's broker (`vshmem xen`).
 *
 * A pool is a device file /dev/vshmem-xen/NAME. Programs use it in the same way
 * as that of the driver for ivshmem, which ../vshmem_ioctl.h specifies. Peer
 * ids are domain ids.
 *
 * The domain that owns a pool has its pages, and grants them to other domains,
 * which map them. The references of all pages are in further pages, which are
 * granted too; the references of these travel by XenStore (docs/xen.md).
 * The hypervisor lets no other domain map any of it.
 *
 * Each call needs CAP_SYS_ADMIN.
 */
#ifndef VSHMEM_XEN_IOCTL_H
#define VSHMEM_XEN_IOCTL_H

#include <linux/ioctl.h>
#include <linux/types.h>

/* Letters, digits, '.', '-' and '_', ending in 0. */
#define VSHMEM_XEN_NAME 65
/* Most pages of references of a pool, so a pool has 256 MiB at the most. */
#define VSHMEM_XEN_LISTS 64

/*
 * VSHMEM_XEN_CREATE creates a pool of this domain's own memory, filled with
 * zeros.
 *
 * @name: its name
 * @self: this domain's id
 * @size: its size in bytes; a multiple of the page size
 *
 * Fails with EEXIST if there is a pool of that name.
 */
struct vshmem_xen_create {
	char name[VSHMEM_XEN_NAME];
	__u8 unused[3];
	__u32 self;
	__u64 size;
};

/*
 * VSHMEM_XEN_GRANT grants a pool of this domain to another one. A second call
 * for the same domain returns the same.
 *
 * @name:  the pool
 * @domid: the domain that may map it
 * @port:  returns the event channel that the domain may bind
 * @count: returns the number of @refs
 * @refs:  returns the references of the pages that hold the pool's references
 *
 * Fails with ENOSPC if this domain's grant table is full (Xen's option
 * gnttab_max_frames).
 */
struct vshmem_xen_grant {
	char name[VSHMEM_XEN_NAME];
	__u8 unused[3];
	__u32 domid;
	__u32 port;
	__u32 count;
	__u32 refs[VSHMEM_XEN_LISTS];
};

/*
 * VSHMEM_XEN_ATTACH maps a pool of another domain into this kernel, and makes
 * its device file.
 *
 * @self:  this domain's id
 * @owner: the domain that owns the pool
 * @size:  the pool's
 * The others are those that VSHMEM_XEN_GRANT has returned to the owner.
 *
 * A pool of that name and owner that was attached before, and whose owner has
 * withdrawn it or died, is removed first. Fails with
 *   EEXIST      it is attached, and its owner has not withdrawn it
 *   EBUSY       a pool of another domain, or of this one, has that name
 *   EACCES      the owner has not granted these pages to this domain
 *   EOPNOTSUPP  this is a PV domain, whose processes can't share a mapping of
 *               another domain's memory
 */
struct vshmem_xen_attach {
	char name[VSHMEM_XEN_NAME];
	__u8 unused[3];
	__u32 self;
	__u32 owner;
	__u32 port;
	__u64 size;
	__u32 count;
	__u32 refs[VSHMEM_XEN_LISTS];
};

/*
 * VSHMEM_XEN_REVOKE revokes a grant. A domain that has the pages mapped keeps
 * them until it unmaps them or dies; their memory is not used again before.
 *
 * VSHMEM_XEN_REMOVE removes a pool of the owner @domid, which may be this
 * domain, from this domain. A process that has it mapped gets SIGBUS at the
 * next access, or zeros (VSHMEM_REMAINS), and sleepers get ENODEV. Fails with
 * EPERM if the pool of that name has another owner.
 *
 * VSHMEM_XEN_GRANTED replaces @domid by the lowest id, not lower than it, of
 * the domains that a pool of this domain is granted to; by VSHMEM_XEN_NOBODY if
 * there is none. So a process finds the grants of one that was killed.
 *
 * VSHMEM_XEN_CLAIM makes this open file the one that serves a pool of this
 * domain, until it is closed. Fails with EBUSY if another one does.
 */
struct vshmem_xen_name {
	char name[VSHMEM_XEN_NAME];
	__u8 unused[3];
	__u32 domid;
};

#define VSHMEM_XEN_NOBODY 0x7ff0

#define VSHMEM_XEN_IOCTL_TYPE 0xd8
#define VSHMEM_XEN_CREATE \
	_IOW(VSHMEM_XEN_IOCTL_TYPE, 0, struct vshmem_xen_create)
#define VSHMEM_XEN_GRANT \
	_IOWR(VSHMEM_XEN_IOCTL_TYPE, 1, struct vshmem_xen_grant)
#define VSHMEM_XEN_ATTACH \
	_IOW(VSHMEM_XEN_IOCTL_TYPE, 2, struct vshmem_xen_attach)
#define VSHMEM_XEN_REVOKE _IOW(VSHMEM_XEN_IOCTL_TYPE, 3, struct vshmem_xen_name)
#define VSHMEM_XEN_REMOVE _IOW(VSHMEM_XEN_IOCTL_TYPE, 4, struct vshmem_xen_name)
#define VSHMEM_XEN_GRANTED \
	_IOWR(VSHMEM_XEN_IOCTL_TYPE, 5, struct vshmem_xen_name)
#define VSHMEM_XEN_CLAIM _IOW(VSHMEM_XEN_IOCTL_TYPE, 6, struct vshmem_xen_name)

#endif /* VSHMEM_XEN_IOCTL_H */
