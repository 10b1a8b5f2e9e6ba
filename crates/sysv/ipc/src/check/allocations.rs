//! Allocations of a pool: its heaps, the directory, the segments, and whose every block is. All of them
//! change under the pool's lock.

use super::finding::{demand, in_words, Location, Report};
use super::participants;
use crate::directory as dir;
use crate::{msg, sem, shm, Ctx, Errno, ProcId};
use vshmem_pool::atomic::Ordering::Relaxed;
use vshmem_pool::heap::audit::Audit;
use vshmem_pool::layout::*;
use vshmem_pool::lock::SignalsBlocked;

/// Goes through it all. `small` and `pages` are scratch, a bit for each block.
pub fn inspect(
    c: &Ctx,
    signals: &SignalsBlocked,
    small: &mut [u64],
    pages: &mut [u64],
    report: Report,
) -> Result<(), Errno> {
    let guard = dir::lock(c, signals)?;
    let state = c.word(POOL_LOG).map_or(0, |w| w.load(Relaxed));
    demand(report, state == 0, Location::Root, "its redo log is not clear", state);
    for kind in Kind::ALL {
        table(c, kind, report);
    }
    let geometry = c.pool.geometry();
    let mut small = Audit::new(c.pool, &geometry.small, small).ok_or(Errno::EINVAL)?;
    small.walk(|block, fault| report(Location::Block(block), in_words(fault), block));
    let (first, _) = c.pool.pages_for_segments();
    shared_out(c, first, &mut small, report);
    let mut pages = Audit::new(c.pool, &geometry.pages, pages).ok_or(Errno::EINVAL)?;
    pages.walk(|page, fault| report(Location::Page(page), in_words(fault), page));
    let is_small = first == 0 || pages.claim(0, first);
    let what = "pages of the small heap, or before it, are free ones of the page heap";
    demand(report, is_small, Location::Root, what, first.into());
    dir::used(c, Kind::Shm).for_each(|(index, _)| segment(c, index, &mut small, &mut pages, report));
    dir::used(c, Kind::Sem).for_each(|(index, _)| {
        sem::check::pieces(c, index, &mut |at, len| {
            let location = Location::Object(Kind::Sem, index);
            owns(c, &mut small, location, at, len, report)
        });
    });
    dir::used(c, Kind::Msg).for_each(|(index, _)| {
        msg::check::pieces(c, index, &mut |at, len| {
            let location = Location::Object(Kind::Msg, index);
            owns(c, &mut small, location, at, len, report)
        });
    });
    participants::lists(c, &mut |index, at, len| {
        owns(c, &mut small, Location::Waiter(index), at, len, report);
    });
    pending_pages(c, &mut pages, report);
    small.nobodys(|block, count| {
        report(Location::Block(block.into()), "so many blocks from it on are nobody's", count.into());
    });
    pages.nobodys(|page, count| {
        report(Location::Page(page.into()), "so many pages from it on are nobody's", count.into());
    });
    drop(guard);
    Ok(())
}

/// Checks that the small heap ends with a page that segments could begin on, and that what it may yet grow to
/// is in no free piece of it.
fn shared_out(c: &Ctx, first_page: u32, small: &mut Audit, report: Report) {
    let geometry = c.pool.geometry();
    let (heap, end) = (&geometry.small, c.pool.root().small_end.load(Relaxed));
    let is_sound = end <= heap.count.into()
        && heap.base + end * heap.block() == geometry.pages.offset(first_page)
        && first_page % geometry.pages.align == 0;
    demand(report, is_sound, Location::Root, "the small heap ends where it can't", end);
    let left = u64::from(heap.count).saturating_sub(end) as u32;
    let is_nobodys = left == 0 || small.claim(heap.count - left, left);
    demand(report, is_nobodys, Location::Root, "blocks behind the small heap's end are free ones of it", end);
}

/// Somebody has a piece of the small heap. False: it is another's too, or none; where a list led there, it
/// leads nowhere.
fn owns(c: &Ctx, small: &mut Audit, location: Location, at: u64, len: u64, report: Report) -> bool {
    let is_ours = small.claim_bytes(at, len);
    let what = "a piece of its memory is free, or another's, or none";
    demand(report, is_ours, location, what, at);
    let heap = &c.pool.geometry().small;
    let backed = c.pool.root().small_backed.load(Relaxed);
    let is_backed = at.saturating_add(len) <= heap.base.saturating_add(backed);
    let what = "a piece of it was never given memory";
    demand(report, is_backed, location, what, at);
    is_ours
}

/// Entries of a kind: ids, chains, free list, counts.
fn table(c: &Ctx, kind: Kind, report: Report) {
    let location = Location::Table(kind);
    let root = c.pool.kind_root(kind);
    let high_said = root.high.load(Relaxed);
    let most = u64::from(c.pool.capacity(kind));
    demand(report, high_said <= most, location, "it has had more entries than there are", high_said);
    let (mut used, mut keyed, mut total) = (0, 0, 0u64);
    dir::used(c, kind).for_each(|(index, head)| {
        let id = head.id.load(Relaxed);
        let right = id as i32 == c.pool.ids().id(index, dir::sequence(head));
        demand(report, right, Location::Object(kind, index), "it has the wrong id", id.into());
        used += 1;
        keyed += u64::from(head.key.load(Relaxed) != 0);
        total = total.saturating_add(match kind {
            Kind::Shm => c.shm(index).map_or(0, |s| s.pages.load(Relaxed)),
            Kind::Sem => c.sem(index).map_or(0, |s| s.nsems.load(Relaxed)),
            Kind::Msg => 0,
        });
    });
    let (used_said, total_said) = (root.used.load(Relaxed), root.total.load(Relaxed));
    demand(report, used == used_said, location, "it counts the entries in use wrongly", used_said);
    demand(report, total == total_said, location, "it counts pages or semaphores wrongly", total_said);
    let chained = chains(c, kind, report);
    demand(report, chained == keyed, location, "so many entries can be found by key, of others", chained);
    let free = free_entries(c, kind, report);
    let right = free + used == high_said;
    demand(report, right, location, "so many entries are in the list of free ones, of others", free);
}

/// Follows the chains; returns how many entries they lead to.
fn chains(c: &Ctx, kind: Kind, report: Report) -> u64 {
    let high = dir::high(c, kind);
    // Before the first entry, the table has no memory.
    let (table, count) = c.pool.geometry().buckets[kind as usize];
    let count = if high == 0 { 0 } else { count };
    let mut found = 0;
    for bucket in (0..u64::from(count)).map(|i| table + i * 8) {
        let mut link = c.word(bucket).map_or(0, |w| w.load(Relaxed));
        while let Some(index) = link.checked_sub(1) {
            let head = u32::try_from(index).ok().filter(|i| *i < high);
            let head = head.and_then(|i| c.head(kind, i));
            let belongs = head.filter(|h| {
                let key = h.key.load(Relaxed);
                key != 0 && h.id.load(Relaxed) != 0 && dir::bucket(c, kind, key) == bucket
            });
            found += 1;
            // More than there are: it leads back to itself.
            let Some(head) = belongs.filter(|_| found <= u64::from(high)) else {
                report(Location::Table(kind), "a chain leads to an entry that does not belong there", index);
                break;
            };
            link = head.next.load(Relaxed);
        }
    }
    found
}

/// Follows the list of free entries; returns how many it leads to.
fn free_entries(c: &Ctx, kind: Kind, report: Report) -> u64 {
    let high = dir::high(c, kind);
    let mut link = c.pool.kind_root(kind).free.load(Relaxed);
    let mut found = 0;
    while let Some(index) = link.checked_sub(1) {
        let head = u32::try_from(index).ok().filter(|i| *i < high);
        let head = head.and_then(|i| c.head(kind, i));
        found += 1;
        let is_free = |h: &&Head| h.id.load(Relaxed) == 0 && found <= u64::from(high);
        let Some(head) = head.filter(is_free) else {
            report(Location::Table(kind), "the list of free entries leads to one that is not", index);
            break;
        };
        link = head.next.load(Relaxed);
    }
    found
}

/// A segment: its pages, and its attachment records.
fn segment(c: &Ctx, index: u32, small: &mut Audit, pages: &mut Audit, report: Report) {
    let location = Location::Object(Kind::Shm, index);
    let Some(shm) = c.shm(index) else { return };
    let (first, count) = (shm.first.load(Relaxed), shm.pages.load(Relaxed));
    let range = u32::try_from(first).ok().zip(u32::try_from(count).ok());
    let is_ours = count > 0 && range.is_some_and(|(first, count)| pages.claim(first, count));
    demand(report, is_ours, location, "some of its pages are free, or another's, or none", first);
    let size = shm.size.load(Relaxed);
    let heap = &c.pool.geometry().pages;
    let fits =
        heap.blocks_for(size).is_some_and(|n| u64::from(n) == count) && first % u64::from(heap.align) == 0;
    demand(report, fits, location, "it has not the pages for its size", size);
    let (mut sum, mut is_inherited) = (0u64, false);
    shm::each_hold(c, shm, |link, hold| {
        let at = c.word(link).map_or(0, |w| w.load(Relaxed));
        let is_ours = owns(c, small, location, at, size_of::<Hold>() as u64, report);
        let owner = hold.owner.load(Relaxed);
        let times = hold.count.load(Relaxed);
        let has_heirs = times == 0 && !c.is_unmapped(hold.source.load(Relaxed));
        let lives = has_heirs || ProcId::of_word(owner).is_some_and(|o| !participants::is_dead(c, o));
        demand(report, lives, location, "somebody who is dead has it attached", owner);
        if !has_heirs {
            participants::is_known_to(c, owner, Kind::Shm.reference(index), report);
            demand(report, times > 0, location, "somebody has it attached, but not once", owner);
        }
        is_inherited |= has_heirs;
        sum = sum.saturating_add(times);
        // A list that leads somewhere else may never end.
        !is_ours
    });
    let said = shm.nattch.load(Relaxed);
    demand(report, sum == said, location, "it counts its attachments wrongly", said);
    let removed = shm::is_removed(&shm.head);
    let left = removed && said == 0 && !is_inherited;
    demand(report, !left, location, "it is removed, and nobody has it attached", said);
    demand(report, !removed || shm.head.key.load(Relaxed) == 0, location, "it is removed, and has a key", 0);
}

/// Pages that are on their way.
fn pending_pages(c: &Ctx, pages: &mut Audit, report: Report) {
    for (i, pending) in (0..).zip(&c.pool.root().pending_pages) {
        let owner = pending.owner.load(Relaxed);
        if owner == 0 {
            continue;
        }
        let location = Location::PendingPages(i);
        let word = |w: u64| u32::try_from(w).ok();
        let range = word(pending.first.load(Relaxed)).zip(word(pending.count.load(Relaxed)));
        let is_ours = range.is_some_and(|(first, count)| pages.claim(first, count));
        demand(report, is_ours, location, "some of its pages are free, or another's, or none", owner);
        let lives = ProcId::of_word(owner).is_some_and(|o| !participants::is_dead(c, o));
        let is_had = lives && owner != ABANDONED;
        demand(report, is_had, location, "who had it is dead, or gave it up", owner);
    }
}
