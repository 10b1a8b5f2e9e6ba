// SPDX-License-Identifier: GPL-2.0
/*
 * Waiting on words of a pool, and waking sleepers, as in the driver for ivshmem
 * (../vshmem.c argues why no wake-up is lost). But a pool's pages are not
 * contiguous.
 */
#include <linux/hash.h>
#include <linux/hrtimer.h>
#include <linux/nospec.h>
#include <linux/sched/signal.h>
#include <linux/time_namespace.h>
#include <linux/uaccess.h>

#include "vshmem_xen.h"

/* A thread in VSHMEM_WAIT, on its stack. */
struct vshmem_sleeper {
	struct list_head node; /* in sleepers.table, until woken */
	struct task_struct *task;
	u64 offset;
	u32 expected;
	bool woken;
	int result; /* once woken */
};

static struct list_head *bucket(struct pool *pool, u64 offset)
{
	return &pool->sleepers.table[hash_64(offset, TABLE_BITS)];
}

static bool is_word(struct pool *pool, u64 offset)
{
	return offset < pool->size && IS_ALIGNED(offset, sizeof(u32));
}

static u32 read_word(struct pool *pool, u64 offset)
{
	offset = array_index_nospec(offset, pool->size);
	return READ_ONCE(
		*(u32 *)(page_address(pool->pages[offset >> PAGE_SHIFT]) +
			 offset_in_page(offset)));
}

/*
 * Under @lock. A sleeper takes @lock before it returns, so it and its task
 * exist until the caller releases it.
 */
static void wake_sleeper(struct vshmem_sleeper *s, int result)
{
	list_del(&s->node);
	s->result = result;
	WRITE_ONCE(s->woken, true);
	wake_up_process(s->task);
}

/* Wake those whose word has changed; with an error, all of them. */
void sleepers_check(struct pool *pool, int error)
{
	struct vshmem_sleeper *s, *next;
	unsigned long flags;
	int i;

	spin_lock_irqsave(&pool->sleepers.lock, flags);
	for (i = 0; i < ARRAY_SIZE(pool->sleepers.table); i++) {
		list_for_each_entry_safe(s, next, &pool->sleepers.table[i],
					 node) {
			if (error || read_word(pool, s->offset) != s->expected)
				wake_sleeper(s, error);
		}
	}
	spin_unlock_irqrestore(&pool->sleepers.lock, flags);
}

static int enqueue(struct pool *pool, struct vshmem_sleeper *s)
{
	int err = 0;

	spin_lock_irq(&pool->sleepers.lock);
	if (pool->sleepers.gone)
		err = -ENODEV;
	else if (read_word(pool, s->offset) != s->expected)
		err = -EAGAIN;
	else
		list_add_tail(&s->node, bucket(pool, s->offset));
	spin_unlock_irq(&pool->sleepers.lock);
	return err;
}

/* A wake-up wins over a signal or the deadline at the same time. */
static int dequeue(struct pool *pool, struct vshmem_sleeper *s, int why)
{
	spin_lock_irq(&pool->sleepers.lock);
	if (s->woken)
		why = s->result;
	else
		list_del(&s->node);
	spin_unlock_irq(&pool->sleepers.lock);
	return why;
}

/* A time namespace may have another offset of the clock. */
static ktime_t to_host_time(s64 deadline)
{
	struct timespec64 shift = {};

	timens_add_monotonic(&shift);
	return ktime_sub(ns_to_ktime(deadline), timespec64_to_ktime(shift));
}

static int do_sleep(struct vshmem_sleeper *s, ktime_t *deadline)
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

long sleepers_wait(struct pool *pool, void __user *arg)
{
	struct vshmem_sleeper s = { .task = current };
	struct vshmem_wait w;
	ktime_t deadline;
	int err;

	if (copy_from_user(&w, arg, sizeof(w)))
		return -EFAULT;
	if (w.flags || w.deadline < VSHMEM_FOREVER || !is_word(pool, w.offset))
		return -EINVAL;
	s.offset = w.offset;
	s.expected = w.expected;

	err = enqueue(pool, &s);
	if (err)
		return err;
	if (w.deadline == VSHMEM_FOREVER)
		return dequeue(pool, &s, do_sleep(&s, NULL));
	deadline = to_host_time(w.deadline);
	return dequeue(pool, &s, do_sleep(&s, &deadline));
}

long sleepers_wake(struct pool *pool, void __user *arg)
{
	struct vshmem_sleeper *s, *next;
	struct vshmem_wake w;
	long woken = 0;

	if (copy_from_user(&w, arg, sizeof(w)))
		return -EFAULT;
	if (w.flags || w.count > VSHMEM_ALL || !is_word(pool, w.offset))
		return -EINVAL;

	spin_lock_irq(&pool->sleepers.lock);
	if (pool->sleepers.gone)
		woken = -ENODEV;
	list_for_each_entry_safe(s, next, bucket(pool, w.offset), node) {
		if (woken < 0 || woken == w.count)
			break;
		if (s->offset == w.offset) {
			wake_sleeper(s, 0);
			woken++;
		}
	}
	spin_unlock_irq(&pool->sleepers.lock);
	return woken;
}

void sleepers_init(struct sleepers *all)
{
	int i;

	spin_lock_init(&all->lock);
	for (i = 0; i < ARRAY_SIZE(all->table); i++)
		INIT_LIST_HEAD(&all->table[i]);
}
