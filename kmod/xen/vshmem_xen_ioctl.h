/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * vshmem_xen_ioctl.h: how pools come and go in a Xen domain, for the back end
 * and the front end of Vshmem (`vshmem xen`), by /dev/vshmem-xen-control.
 *
 * A pool is a device file /dev/vshmem-xen/NAME. What programs do with it is the
 * same as with the driver of ivshmem, and is specified in ../vshmem_ioctl.h:
 * members are numbered by their domain ids.
 *
 * The domain that owns a pool has its pages, and grants them to other domains,
 * which map them. The references of all pages are in further pages, which are
 * granted too; the references of these travel by XenStore (docs/xen.md).
 * The hypervisor lets nobody else map any of it.
 *
 * Each call needs CAP_SYS_ADMIN.
 */
#ifndef VSHMEM_XEN_IOCTL_H
#define VSHMEM_XEN_IOCTL_H

#include <linux/ioctl.h>
#include <linux/types.h>

/* Letters, digits, '.', '-' and '_', ending in 0. */
#define VSHMEM_XEN_NAME 65
/* As many pages with references as a pool can have, so 256 MiB. */
#define VSHMEM_XEN_LISTS 64

/*
 * VSHMEM_XEN_CREATE makes a pool of this domain's own memory, filled with
 * zeros.
 *
 * @name: its name
 * @self: this domain's id
 * @size: its bytes; a multiple of the page size
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
 * VSHMEM_XEN_GRANT lets another domain map a pool of this domain. A second call
 * for the same domain tells the same again.
 *
 * @name:  the pool
 * @domid: who may map it
 * @port:  told: the event channel that the domain may bind
 * @count: told: how many of @refs there are
 * @refs:  told: references of the pages that hold the pool's references
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
 * @size:  of the pool
 * Others as VSHMEM_XEN_GRANT told them to the owner.
 *
 * A pool of that name and owner that was attached before, and whose owner has
 * withdrawn it or died, is removed first. Fails with
 *   EEXIST      it is attached, and is what its owner serves
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
 * VSHMEM_XEN_REVOKE takes a grant back. A domain that has the pages mapped
 * keeps them until it unmaps them or dies; their memory is not given to others
 * before.
 *
 * VSHMEM_XEN_REMOVE takes a pool of the owner @domid, which may be this domain,
 * away from this domain: whoever has it mapped gets SIGBUS at the next access,
 * or zeros (VSHMEM_REMAINS), sleepers ENODEV. EPERM: the pool of that name is
 * another owner's.
 *
 * VSHMEM_XEN_GRANTED replaces @domid by the least one, not less than it, of
 * those that this pool of this domain's is granted to; by VSHMEM_XEN_NOBODY if
 * there is none. So a back end that was killed finds what it left.
 *
 * VSHMEM_XEN_CLAIM says that this open file is by which the pool of this
 * domain's is served, until it is closed. EBUSY: another one is.
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
