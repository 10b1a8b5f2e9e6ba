/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * vshmem_ioctl.h: what /dev/vshmemN offers to programs.
 *
 * One device file stands for one ivshmem PCI device (1af4:1110): a range of
 * memory that several kernels on one host map, the pool, and, for the variant
 * ivshmem-doorbell, a register that interrupts the other members. The link
 * /sys/class/vshmem/vshmemN/device leads to the PCI device, and the directory
 * /sys/bus/pci/devices/ADDRESS/vshmem/ names the device file.
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
 *	2. calls VSHMEM_WAKE if threads of its own kernel may wait for it,
 *	3. calls VSHMEM_RING once for each other member with a waiting thread.
 *   Programs record in the pool which members have waiters, before they wait.
 *
 *   An interrupt does not say which word was changed. The driver reads the word
 *   of every sleeper of the device again, and wakes those whose word has no
 *   longer the expected value. Hence two rules:
 *     - change the word before you ring;
 *     - do not change it back: a sleeper whose word has its expected value
 *       again when the interrupt arrives goes on sleeping. Use a counter or a
 *       state that only the waiter itself resets.
 *   If both are kept, no wake-up is lost. As with a futex, wake-ups may be
 *   spurious; check the word again.
 *
 * When the device goes away
 *   After a hot-unplug or an unbind of the driver no process reaches the
 *   memory any more: an access to a mapping raises SIGBUS, sleepers return with
 *   ENODEV at once, and every further call but close() and munmap() fails with
 *   it. A program that can't handle SIGBUS, such as a library in another
 *   program, adds VSHMEM_REMAINS to the offset that it passes to mmap(). Then
 *   the mapping stays. From the removal on it shows zeros instead of the pool,
 *   and writes go to memory of this process (and of children that it forks
 *   later) only. So the program has to check whether a word that is never zero
 *   in a pool has become zero. Drivers with this feature have
 *   VSHMEM_HAS_REMAINS in vshmem_info.flags; others refuse such an offset with
 *   EINVAL.
 *   The file stays dead; open the new device file. While a file is open or
 *   mapped the driver can't be unloaded.
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
 * VSHMEM_DOORBELL     this member has a doorbell, and can ring others'
 * VSHMEM_CACHED       mappings are write-back; else they are at device speed
 * VSHMEM_HAS_REMAINS  mappings may outlive the device, see VSHMEM_REMAINS. Not
 *                     without VSHMEM_CACHED, nor in machines whose memory is
 *                     encrypted
 */
#define VSHMEM_DOORBELL 1
#define VSHMEM_CACHED 2
#define VSHMEM_HAS_REMAINS 4

/*
 * Added to an offset of mmap(): when the device goes away the mapping stays and
 * shows zeros, instead of raising SIGBUS.
 */
#define VSHMEM_REMAINS (1ULL << 62)

/*
 * VSHMEM_INFO fills it in.
 *
 * @abi:     VSHMEM_ABI of the loaded driver
 * @flags:   VSHMEM_DOORBELL, VSHMEM_CACHED
 * @size:    bytes of the pool; a multiple of the page size
 * @member:  this kernel's peer id (0 to 65535), by which others ring its
 *           doorbell; -1 if the device has no doorbell
 * @vectors: interrupt vectors of this member's doorbell, 0 to @vectors - 1; 0
 *           if the device has no doorbell. All vectors mean the same
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
 * VSHMEM_IDENTITY fills it in: what distinguishes this kernel from all others
 * that use the pool, by this device. It is the same for all processes, whatever
 * namespaces they are in.
 *
 * The driver generates it at random when it probes the device. So another
 * machine has another one even if it is a copy of this one, with its boot id.
 * So has this one after a reboot, and for each device of the same pool. Without
 * this call (ENOTTY) copies of machines can't be distinguished.
 */
struct vshmem_identity {
	__u64 id[2];
};

/*
 * VSHMEM_WAIT sleeps while the word has the expected value.
 *
 * @offset:   of the word in the pool; a multiple of 4
 * @expected: the value with which to sleep
 * @flags:    0
 * @deadline: CLOCK_MONOTONIC in nanoseconds, or VSHMEM_FOREVER
 *
 * Returns 0 when woken, or fails with
 *   EAGAIN     the word did not have the expected value
 *   ETIMEDOUT  the deadline has passed. With one in the past, the word is only
 *              checked
 *   EINTR      a signal was handled. Never restarted, whatever SA_RESTART says
 *
 * Without a doorbell only wake-ups from this kernel (VSHMEM_WAKE) end a wait
 * before its deadline. A thread that waits for other members then has to use
 * short deadlines, and check the word after each.
 */
struct vshmem_wait {
	__u64 offset;
	__u32 expected;
	__u32 flags;
	__s64 deadline;
};

#define VSHMEM_FOREVER (-1)

/*
 * VSHMEM_WAKE wakes sleepers of this kernel in the order in which they went to
 * sleep, whatever the value of the word.
 *
 * @offset: of the word in the pool; a multiple of 4
 * @count:  how many to wake at most, or VSHMEM_ALL
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
 * VSHMEM_RING interrupts a member. A member or vector that does not exist is
 * ignored; a member may ring its own doorbell.
 *
 * @peer:   the member's peer id, 0 to 65535
 * @vector: 0 to 65534; 0 will do
 * @device: 0, or the minor number of the intended file, plus 1. For a library
 *          whose descriptor the program around it may have closed, so that it
 *          need not check each time which file it refers to.
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
