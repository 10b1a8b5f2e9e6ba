/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * vshmem_ioctl.h: what /dev/vshmemN offers to programs.
 *
 * One device file stands for one ivshmem PCI device (1af4:1110): a range of
 * memory that several kernels on one host map, the pool, and, for the variant
 * ivshmem-doorbell, a register that interrupts the other members. Which PCI
 * device it is says the link /sys/class/vshmem/vshmemN/device, and the other
 * way round the directory /sys/bus/pci/devices/ADDRESS/vshmem/.
 *
 * The memory
 *   mmap() with MAP_SHARED maps it, whole or any range of pages, write-back
 *   (see VSHMEM_CACHED). Offset 0 is the first byte of the pool. A file that
 *   was opened read-only can only be mapped read-only. No system call is
 *   needed between mmap() and munmap(); the calls below are for waiting.
 *
 * Waiting across kernels
 *   A futex does not work on this memory, and would know this kernel's
 *   processes only. Instead a waiter calls VSHMEM_WAIT on a 32-bit word of the
 *   pool, and a waker
 *	1. changes the word (a sequentially consistent store or exchange),
 *	2. calls VSHMEM_WAKE if sleepers of its own kernel may be among those
 *	   who wait for it,
 *	3. calls VSHMEM_RING once for each other member where somebody sleeps.
 *   Who sleeps where is for the program to note in the pool, before it waits.
 *
 *   An interrupt does not say for whom it is. It makes the driver read the
 *   word of every sleeper of the device again; those whose word is no longer
 *   what they expect are woken. Hence the two rules:
 *     - change the word before you ring;
 *     - do not change it back: a sleeper whose word has its expected value
 *       again when the interrupt arrives goes on sleeping. Use a counter or a
 *       state that only the waiter itself sets back.
 *   With both kept no wake-up is lost. Like a futex, a wait may also end
 *   without reason; look at the word again.
 *
 * When the device goes away
 *   After a hot-unplug or an unbind of the driver no process reaches the
 *   memory any more: an access to a mapping raises SIGBUS, sleepers return with
 *   ENODEV at once, and so does every further call but close() and munmap().
 *   A program that can't have a SIGBUS at any access, such as a library in
 *   somebody else's program, adds VSHMEM_REMAINS to the offset that it gives
 *   to mmap(): then the mapping stays. From the removal on it shows zeros
 *   instead of the pool, and takes what is written for this process (and
 *   children that it forks later) only, in memory of its own. So the
 *   program has to look whether a word that is never zero has become so.
 *   Drivers that know this have VSHMEM_HAS_REMAINS in vshmem_info.flags;
 *   others refuse such an offset with EINVAL.
 *   The file never comes back to life; open the new device file. While a file
 *   is open or mapped the driver can't be unloaded.
 *
 * Errors of all calls
 *   EBADF   VSHMEM_WAKE or VSHMEM_RING, and the file was opened read-only
 *   EFAULT  the argument is no readable (writable, for VSHMEM_INFO and
 *           VSHMEM_IDENTITY) memory
 *   EINVAL  an argument is out of range, or unused bits of it are set
 *   ENODEV  the device is gone
 *   ENOTTY  there is no such call
 */
#ifndef VSHMEM_IOCTL_H
#define VSHMEM_IOCTL_H

#include <linux/ioctl.h>
#include <linux/types.h>

/*
 * Number of this interface; another number means that calls have changed. What
 * is added has a flag instead.
 */
#define VSHMEM_ABI 1

/*
 * vshmem_info.flags:
 * VSHMEM_DOORBELL     this member can be rung, and can ring
 * VSHMEM_CACHED       mappings are write-back; else they are at device speed
 * VSHMEM_HAS_REMAINS  mappings may outlive the device, see VSHMEM_REMAINS. Not
 *                     without VSHMEM_CACHED, nor in machines whose memory is
 *                     encrypted
 */
#define VSHMEM_DOORBELL 1
#define VSHMEM_CACHED 2
#define VSHMEM_HAS_REMAINS 4

/*
 * Added to an offset of mmap(): when the device goes away the mapping stays,
 * and shows zeros, rather than to raise SIGBUS.
 */
#define VSHMEM_REMAINS (1ULL << 62)

/*
 * VSHMEM_INFO fills it in.
 *
 * @abi:     VSHMEM_ABI of the loaded driver
 * @flags:   VSHMEM_DOORBELL, VSHMEM_CACHED
 * @size:    bytes of the pool; a multiple of the page size
 * @member:  this kernel's number among the pool's members (0 to 65535), which
 *           others ring; -1 where the device has no doorbell
 * @vectors: interrupts that this member takes; it may be rung on 0 to
 *           @vectors - 1. 0 where the device has no doorbell. They all mean
 *           the same
 * @pci:     address of the PCI device, for instance "0000:00:04.0", ending in 0
 */
struct vshmem_info {
	__u32 abi;
	__u32 flags;
	__u64 size;
	__s32 member;
	__u32 vectors;
	char pci[24];
};

/*
 * VSHMEM_IDENTITY fills it in: what tells this kernel from all others that use
 * the pool, by this device. All processes get the same, whatever name spaces
 * they are in.
 *
 * The driver draws it when it takes the device. So another machine has another
 * one even if it is a copy of this one, with its boot id, and so has this one
 * once it was booted again, or has its pool by two devices. Who has no driver
 * that knows this call (ENOTTY) can't tell copies of machines apart.
 */
struct vshmem_identity {
	__u64 id[2];
};

/*
 * VSHMEM_WAIT sleeps while the word has the expected value.
 *
 * @offset:   of the word in the pool; a multiple of 4
 * @expected: value that it has while there is a reason to sleep
 * @flags:    0
 * @deadline: CLOCK_MONOTONIC in nanoseconds, or VSHMEM_FOREVER
 *
 * Returns 0 when woken, or fails with
 *   EAGAIN     the word did not have the expected value: no sleep was needed
 *   ETIMEDOUT  the deadline has passed. A deadline in the past only looks
 *   EINTR      a signal was handled. Never restarted, whatever SA_RESTART says
 *
 * Without a doorbell only wake-ups from this kernel (VSHMEM_WAKE) end a wait
 * before its deadline. A waiter that waits for other members then has to choose
 * short deadlines, and look at the word after each.
 */
struct vshmem_wait {
	__u64 offset;
	__u32 expected;
	__u32 flags;
	__s64 deadline;
};

#define VSHMEM_FOREVER (-1)

/*
 * VSHMEM_WAKE wakes sleepers of this kernel, those first who have slept
 * longest, whatever the value of the word.
 *
 * @offset: of the word in the pool; a multiple of 4
 * @count:  wake at most so many; VSHMEM_ALL: all
 * @flags:  0
 *
 * Returns how many were woken.
 */
struct vshmem_wake {
	__u64 offset;
	__u32 count;
	__u32 flags;
};

#define VSHMEM_ALL 0x7fffffff

/*
 * VSHMEM_RING interrupts a member. To ring a member that there isn't, or a
 * vector that it doesn't have, does nothing; to ring oneself is allowed.
 *
 * @peer:   number of the member, 0 to 65535
 * @vector: 0 to 65534; 0 serves if in doubt
 * @device: 0, or the minor number of the file that is meant, plus 1. For a
 *          library that can't be sure what its descriptor is open on, since the
 *          program around it may have closed it, and would else have to ask
 *          each time.
 *
 * Fails with
 *   EOPNOTSUPP  the device has no doorbell
 *   EXDEV       the file is another device's than @device says
 */
struct vshmem_ring {
	__u32 peer;
	__u16 vector;
	__u16 device;
};

#define VSHMEM_IOCTL_TYPE 0xd7
#define VSHMEM_INFO _IOR(VSHMEM_IOCTL_TYPE, 0, struct vshmem_info)
#define VSHMEM_WAIT _IOW(VSHMEM_IOCTL_TYPE, 1, struct vshmem_wait)
#define VSHMEM_WAKE _IOW(VSHMEM_IOCTL_TYPE, 2, struct vshmem_wake)
#define VSHMEM_RING _IOW(VSHMEM_IOCTL_TYPE, 3, struct vshmem_ring)
#define VSHMEM_IDENTITY _IOR(VSHMEM_IOCTL_TYPE, 4, struct vshmem_identity)

#endif /* VSHMEM_IOCTL_H */
