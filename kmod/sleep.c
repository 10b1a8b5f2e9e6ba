// SPDX-License-Identifier: GPL-2.0
/*
 * Waiting on words of a pool, and waking sleepers.
 *
 * The memory is untrusted: other kernels write to it at any time. The drivers
 * only ever read single 32-bit words of it, and only compare them.
 *
 * Why no wake-up is lost
 *   A sleeper compares its word and joins its bucket in one critical section of
 *   @lock. A waker writes the word, then rings the doorbell; the interrupt
 *   arrives after the word is visible. Its handler, or the handler's thread,
 *   checks each bucket under @lock. If it does so before the sleeper, the
 *   sleeper sees the new word and does not sleep. If it does so after the
 *   sleeper, it finds the sleeper, sees the new word and wakes it. A doorbell
 *   that arrives while they run makes them run again. Several doorbells may be
 *   coalesced: one check of all sleepers answers them all. A resume checks them
 *   as well.
 *
 * How long interrupts are off
 *   The handler checks few sleepers itself: to wake its thread first would cost
 *   a sleeper one more switch of the processor. It leaves more than that to the
 *   thread, which checks one bucket after the other.
 */
#include <linux/hash.h>
#include <linux/hrtimer.h>
#include <linux/nospec.h>
#include <linux/sched/signal.h>
#include <linux/time_namespace.h>
#include <linux/uaccess.h>

#include "pool.h"

/* So many sleepers are checked in an interrupt. */
#define FEW 8

/* A thread in VSHMEM_WAIT, on its stack. */
struct sleeper {
	struct list_head node; /* in a bucket, until woken */
	struct task_struct *task;
	const u32 *word;
	u32 expected;
	bool woken;
	int result; /* once woken */
};

static const u32 *word_at(struct pool *pool, u64 offset)
{
	if (offset >= pool->size || !IS_ALIGNED(offset, sizeof(u32)))
		return NULL;
	return pool_address(pool, array_index_nospec(offset, pool->size));
}

static struct list_head *bucket_of(struct pool *pool, const u32 *word)
{
	return &pool->sleepers.buckets[hash_ptr(word, BUCKETS_BITS)];
}

/*
 * Under @lock. A sleeper takes it before it returns, so it and its task exist
 * until the caller releases it.
 */
static void wake_sleeper(struct sleepers *all, struct sleeper *s, int result)
{
	list_del(&s->node);
	all->count--;
	s->result = result;
	WRITE_ONCE(s->woken, true);
	wake_up_process(s->task);
}

/* Under @lock. Wakes those whose word has changed; with an error, all. */
static void check_bucket(struct sleepers *all, int number, int error)
{
	struct sleeper *s, *next;

	list_for_each_entry_safe(s, next, &all->buckets[number], node) {
		if (error || READ_ONCE(*s->word) != s->expected)
			wake_sleeper(all, s, error);
	}
}

void sleepers_check(struct sleepers *all, int error)
{
	int i;

	for (i = 0; i < BUCKETS; i++) {
		spin_lock_irq(&all->lock);
		check_bucket(all, i, error);
		spin_unlock_irq(&all->lock);
	}
}

irqreturn_t sleepers_interrupt(int irq, void *data)
{
	irqreturn_t ret = IRQ_WAKE_THREAD;
	struct sleepers *all = data;
	int i;

	spin_lock(&all->lock);
	if (all->count <= FEW) {
		for (i = 0; i < BUCKETS; i++)
			check_bucket(all, i, 0);
		ret = IRQ_HANDLED;
	}
	spin_unlock(&all->lock);
	return ret;
}

irqreturn_t sleepers_thread(int irq, void *data)
{
	sleepers_check(data, 0);
	return IRQ_HANDLED;
}

static int enqueue(struct pool *pool, struct sleeper *s)
{
	struct sleepers *all = &pool->sleepers;
	int err = 0;

	spin_lock_irq(&all->lock);
	if (READ_ONCE(pool->gone)) {
		err = -ENODEV;
	} else if (READ_ONCE(*s->word) != s->expected) {
		err = -EAGAIN;
	} else {
		list_add_tail(&s->node, bucket_of(pool, s->word));
		all->count++;
	}
	spin_unlock_irq(&all->lock);
	return err;
}

/* A wake-up wins over a signal or the deadline at the same time. */
static int dequeue(struct sleepers *all, struct sleeper *s, int why)
{
	spin_lock_irq(&all->lock);
	if (!s->woken)
		wake_sleeper(all, s, why);
	spin_unlock_irq(&all->lock);
	return s->result;
}

/* A time namespace may have another offset of the clock. */
static ktime_t to_host_time(s64 deadline)
{
	struct timespec64 shift = {};

	timens_add_monotonic(&shift);
	return ktime_sub(ns_to_ktime(deadline), timespec64_to_ktime(shift));
}

/* ps shows this name (wchan). */
static int vshmem_sleep(struct sleeper *s, ktime_t *deadline)
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
	struct sleeper s = { .task = current };
	struct vshmem_wait w;
	ktime_t deadline;
	int err;

	if (copy_from_user(&w, arg, sizeof(w)))
		return -EFAULT;
	s.word = word_at(pool, w.offset);
	if (w.flags || w.deadline < VSHMEM_FOREVER || !s.word)
		return -EINVAL;
	s.expected = w.expected;

	err = enqueue(pool, &s);
	if (err)
		return err;
	if (w.deadline == VSHMEM_FOREVER)
		return dequeue(&pool->sleepers, &s, vshmem_sleep(&s, NULL));
	deadline = to_host_time(w.deadline);
	return dequeue(&pool->sleepers, &s, vshmem_sleep(&s, &deadline));
}

long sleepers_wake(struct pool *pool, void __user *arg)
{
	struct sleepers *all = &pool->sleepers;
	struct sleeper *s, *next;
	struct vshmem_wake w;
	const u32 *word;
	long woken = 0;

	if (copy_from_user(&w, arg, sizeof(w)))
		return -EFAULT;
	word = word_at(pool, w.offset);
	if (w.flags || w.count > VSHMEM_ALL || !word)
		return -EINVAL;

	spin_lock_irq(&all->lock);
	if (READ_ONCE(pool->gone))
		woken = -ENODEV;
	list_for_each_entry_safe(s, next, bucket_of(pool, word), node) {
		if (woken < 0 || woken == w.count)
			break;
		if (s->word == word) {
			wake_sleeper(all, s, 0);
			woken++;
		}
	}
	spin_unlock_irq(&all->lock);
	return woken;
}

void sleepers_init(struct sleepers *all)
{
	int i;

	spin_lock_init(&all->lock);
	for (i = 0; i < BUCKETS; i++)
		INIT_LIST_HEAD(&all->buckets[i]);
}
