//! A barrier for a fixed number of parties, in a segment.
//!
//! One 64-bit word counts phases and, within a phase, the parties that have arrived; the last to arrive moves
//! it to the next phase. A second word has the phase for sleepers. Each party has a seat with its name,
//! so that the others learn when it dies. Whether a dead party had arrived is unknown. So before its seat is
//! taken, the count begins anew: the round is over, and parties that wait arrive again in the next round of
//! the phase.
//!
//! A party that waits looks for a moment, then leaves its processor to others between looks, for parties may
//! be more than processors, and sleeps only when nothing has changed for long. Whoever is last to arrive
//! enters the kernel only if somebody sleeps: a third word tells in which phase that was so.

mod head;
mod seats;

use head::{Head, ARRIVALS, HEAD, MAX_PARTIES};

use crate::calls::{self, again};
use crate::pools::caller::{caller, caller_of, Caller};
use crate::pools::sizes;
use crate::pools::table::POOLS;
use crate::process::raw;
use crate::thread::last_error::explain;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use core::time::Duration;
use vshmem_ipc::{shm, Errno};
use vshmem_pool::tuning::{GIVE_WAY_NS, GIVE_WAY_STILL_NS};
use vshmem_pool::{Kernel, Waited};

/// Values of eight bytes in one step of a reduction.
pub const CHUNK: usize = 2048;
/// So few have one cache line for each party, beside each other: their places take more time than they do.
pub const FEW: usize = 8;
const MAGIC: u32 = 0x5653_4232; // "VSB2"
/// Of version 0.2.0, which wakes and sleeps without a word about it: such parties can't be mixed with ours.
const OLD_MAGIC: u32 = 0x5653_4231; // "VSB1"
/// Looks at the phase before the processor is left to others: more than a meeting takes of parties that are
/// all at work.
const LOOKS_AT_PHASE: u32 = 100;
/// Times that the processor is left to others between two looks at the clock.
const YIELDS: u32 = 8;
/// A party's longest sleep before it looks whether another one has died: the others learn of a death within a
/// moment, and looks cost next to nothing.
const LONGEST_SLEEP: Duration = Duration::from_millis(250);

/// A party's own view of a barrier, in memory of its own.
pub struct Barrier {
    head: *const Head,
    pool: usize,
    parties: u32,
    seat: u32,
    /// The phase that the caller is in. Parties write the shared word as they arrive, so a look at it costs.
    phase: AtomicU32,
}

/// Bytes of the mapping that holds a [`Barrier`].
const VIEW: usize = 4096;

fn phase_of(state: u64) -> u32 {
    (state >> 32) as u32
}

fn bytes_of(parties: u32) -> usize {
    HEAD + 2 * parties as usize * (FEW + CHUNK) * 8
}

impl Barrier {
    /// Finds or makes the barrier of that key in the current pool, and takes a seat.
    pub fn open(key: i32, parties: u32) -> Result<*mut Barrier, Errno> {
        if key == libc::IPC_PRIVATE || parties == 0 || parties as usize > MAX_PARTIES {
            explain(format_args!(
                "a barrier has a key other than IPC_PRIVATE, and 1 to {MAX_PARTIES} parties"
            ));
            return Err(Errno::EINVAL);
        }
        let caller = caller()?;
        let id = calls::shm::get(&caller, key, bytes_of(parties), libc::IPC_CREAT | 0o600)
            .map_err(|error| explained(error, key))?;
        let at = calls::shm::attach_range(&caller, id, 0, 0)?;
        // The mapping's length bounds all that follows, and not what the pool says.
        let result = match at.len() >= bytes_of(parties) {
            true => Self::sit_down(&caller, at.start as *const Head, parties),
            false => Err(sizes::changed()),
        }
        .map_err(|error| explained(error, key));
        if result.is_err() {
            let _ = calls::shm::detach(at.start);
        }
        result
    }

    fn sit_down(caller: &Caller, head: *const Head, parties: u32) -> Result<*mut Barrier, Errno> {
        // SAFETY: the segment was attached for reading and writing, has at least a head's length, and zeros
        // or any other bytes are valid atomics.
        let shared = unsafe { &*head };
        claim_word(&shared.parties, parties)?;
        claim_word(&shared.magic, MAGIC)?;
        let view = raw::map_private(VIEW).cast::<Barrier>();
        if view.is_null() {
            return Err(Errno::ENOMEM);
        }
        let Some(seat) = seats::take_seat(caller, shared, parties) else {
            // SAFETY: mapped above.
            unsafe { raw::unmap(view.cast(), VIEW) };
            explain(format_args!("all {parties} parties are there already"));
            return Err(Errno(libc::EBUSY));
        };
        let pool = caller.pool_index();
        // From now on no phase ends without the caller.
        let phase = AtomicU32::new(phase_of(shared.state.load(Acquire)));
        // SAFETY: the mapping is large enough and aligned.
        unsafe { view.write(Barrier { head, pool, parties, seat, phase }) };
        Ok(view)
    }

    fn head(&self) -> &Head {
        // SAFETY: attached until `close`.
        unsafe { &*self.head }
    }

    fn seats(&self) -> &[AtomicU64] {
        &self.head().seats[..self.parties as usize]
    }

    /// The number of parties.
    pub fn parties(&self) -> usize {
        self.parties as usize
    }

    /// The caller's seat.
    pub fn seat(&self) -> usize {
        self.seat as usize
    }

    /// The phase under way. It can't end without the caller.
    pub fn phase(&self) -> u32 {
        self.phase.load(Relaxed)
    }

    /// Whether that phase is over.
    fn is_over(&self, phase: u32) -> bool {
        phase_of(self.head().state.load(Acquire)) != phase
    }

    /// The place of a party's `n` values, a [`CHUNK`] at the most, in a phase. Two phases in a row use
    /// different places: when the second begins, all have read what was written for the one before the first.
    pub fn slot(&self, phase: u32, seat: usize, n: usize) -> &[AtomicU64] {
        let index = (phase as usize & 1) * self.parties() + seat;
        let at = match n <= FEW {
            true => index * FEW,
            false => 2 * self.parties() * FEW + index * CHUNK,
        };
        // SAFETY: inside the segment, whose size `bytes_of` gave for this number of parties.
        unsafe {
            let first = self.head.cast::<u8>().add(HEAD).cast::<AtomicU64>().add(at);
            core::slice::from_raw_parts(first, n.min(CHUNK))
        }
    }

    /// Waits until all have arrived. True for one of them.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<bool, Errno> {
        let phase = self.phase();
        let is_last = self.meet(phase, timeout)?;
        self.phase.store(phase.wrapping_add(1), Relaxed);
        Ok(is_last)
    }

    fn meet(&self, phase: u32, timeout: Option<Duration>) -> Result<bool, Errno> {
        let Some(round) = self.arrive(phase) else {
            return Ok(true);
        };
        let place = &POOLS[self.pool];
        let looks = if place.glance() > 0 { LOOKS_AT_PHASE } else { 1 };
        for _ in 0..looks {
            if self.is_over(phase) {
                return Ok(false);
            }
            place.back_off(1);
        }
        let deadline =
            timeout.map(|t| place.monotonic().saturating_add(t.as_nanos().min(u64::MAX.into()) as u64));
        if self.give_way(place, phase, round, deadline) {
            return Ok(false);
        }
        self.sleep(place, phase, round, deadline)
    }

    /// Leaves the processor to others between looks, while parties arrive. False: it is time to sleep.
    fn give_way(&self, place: &dyn Kernel, phase: u32, round: u64, deadline: Option<u64>) -> bool {
        let begun = place.monotonic();
        let end = deadline.unwrap_or(u64::MAX).min(begun.saturating_add(GIVE_WAY_NS));
        let (mut seen, mut changed) = (0, begun);
        loop {
            for _ in 0..YIELDS {
                place.give_way();
                if self.is_over(phase) {
                    return true;
                }
            }
            let (state, now) = (self.head().state.load(Acquire), place.monotonic());
            if state != seen {
                (seen, changed) = (state, now);
            }
            let is_anew = state >> 16 != round;
            if is_anew || now >= end || now.saturating_sub(changed) > GIVE_WAY_STILL_NS {
                return false;
            }
        }
    }

    /// Counts the caller as arrived; returns phase and round in one number. `None`: it was the last to
    /// arrive.
    fn arrive(&self, phase: u32) -> Option<u64> {
        let head = self.head();
        let is_last = |old: u64| (old & ARRIVALS) + 1 >= u64::from(self.parties);
        let next = |old: u64| match is_last(old) {
            true => u64::from(phase.wrapping_add(1)) << 32,
            false => u64::from(phase) << 32 | u64::from(old as u32 + 1),
        };
        // A guess is swapped, and not read before, so that the line comes once, to be written.
        let mut old = u64::from(phase) << 32;
        while let Err(now) = head.state.compare_exchange(old, next(old), SeqCst, Acquire) {
            old = now;
        }
        if !is_last(old) {
            return Some(next(old) >> 16);
        }
        if head.asleep.load(SeqCst) == phase {
            head.turn.store(phase.wrapping_add(1), Release);
            POOLS[self.pool].wake(&head.turn, u32::MAX >> 1);
        }
        None
    }

    /// Says that the caller goes to sleep in this phase; it looks at the phase again then. Of that look and
    /// of the last party's at this word, one at least sees what the other party has written: all four are in
    /// one order. A party that was slow to say so never takes back what others say of a later phase.
    fn tell_of_sleep(&self, phase: u32) {
        let is_newer = |told: u32| (phase.wrapping_sub(told) as i32 > 0).then_some(phase);
        let _ = self.head().asleep.fetch_update(SeqCst, SeqCst, is_newer);
    }

    fn sleep(
        &self,
        place: &dyn Kernel,
        phase: u32,
        mut round: u64,
        deadline: Option<u64>,
    ) -> Result<bool, Errno> {
        let head = self.head();
        self.tell_of_sleep(phase);
        loop {
            let state = head.state.load(SeqCst);
            if phase_of(state) != phase {
                return Ok(false);
            }
            if state >> 16 != round {
                match self.arrive(phase) {
                    Some(next) => round = next,
                    None => return Ok(true),
                }
            }
            let left = match deadline {
                None => LONGEST_SLEEP,
                Some(end) => Duration::from_nanos(end.saturating_sub(place.monotonic())).min(LONGEST_SLEEP),
            };
            if left.is_zero() {
                return self.withdraw(round, libc::ETIMEDOUT);
            }
            // Nobody has slept in the phase before, or the last party to arrive died before it said so.
            let turn = head.turn.load(Acquire);
            if turn != phase {
                if self.is_over(phase) {
                    return Ok(false);
                }
                let _ = head.turn.compare_exchange(turn, phase, AcqRel, Relaxed);
                continue;
            }
            match place.wait(&head.turn, phase, Some(left)) {
                Waited::TimedOut if self.somebody_died() => {
                    return self.withdraw(round, libc::EOWNERDEAD);
                }
                Waited::Forked => return Err(Errno::EINTR),
                _ => {}
            }
        }
    }

    fn somebody_died(&self) -> bool {
        let Ok(caller) = caller_of(self.pool) else {
            return false;
        };
        self.seats().iter().any(|seat| {
            let party = seat.load(Acquire);
            // It may have left its seat and ended well since then.
            seats::is_dead(&caller, party) && seat.load(Acquire) == party
        })
    }

    /// Takes the caller's arrival back, unless all have arrived meanwhile.
    fn withdraw(&self, round: u64, why: i32) -> Result<bool, Errno> {
        let back = |old: u64| (old >> 16 == round && old & ARRIVALS > 0).then(|| old - 1);
        match self.head().state.fetch_update(AcqRel, Acquire, back) {
            Err(now) if now >> 32 != round >> 16 => Ok(false),
            // Where the round is over, the arrival went with it.
            _ => Err(Errno(why)),
        }
    }

    /// Gives the seat up and detaches.
    ///
    /// # Safety
    /// `barrier` came from [`Barrier::open`] and is not used any more.
    pub unsafe fn close(barrier: *mut Barrier) -> Result<(), Errno> {
        // SAFETY: the caller hands it over.
        let this = unsafe { barrier.read() };
        let caller = caller_of(this.pool)?;
        let seat = &this.seats()[this.seat()];
        let _ = seat.compare_exchange(caller.ctx.me.word(), 0, AcqRel, Relaxed);
        calls::shm::detach(this.head as usize)?;
        // SAFETY: the view's own mapping.
        unsafe { raw::unmap(barrier.cast(), VIEW) };
        Ok(())
    }

    /// Removes the barrier of that key from the current pool; it goes when the last party closes it.
    pub fn remove(key: i32) -> Result<(), Errno> {
        let caller = caller()?;
        let id = calls::shm::get(&caller, key, 0, 0)?;
        let at = calls::shm::attach_range(&caller, id, 0, libc::SHM_RDONLY)?;
        let is_barrier = at.len() >= HEAD && {
            // SAFETY: attached for reading at a page's start, this far, and any bytes are a number.
            let magic = unsafe { &*(at.start as *const Head) }.magic.load(Acquire);
            [MAGIC, OLD_MAGIC].contains(&magic)
        };
        calls::shm::detach(at.start)?;
        if !is_barrier {
            explain(format_args!("key {key:#x} belongs to something else"));
            return Err(Errno::EINVAL);
        }
        again(|| shm::remove(&caller.ctx, id))
    }
}

/// Explains EINVAL: the key has no barrier for this number of parties.
fn explained(error: Errno, key: i32) -> Errno {
    if error == Errno::EINVAL {
        explain(format_args!(
            "key {key:#x} belongs to something else, or to a barrier for another number of parties or of \
             another version"
        ));
    }
    error
}

/// Sets a word that is 0, or finds that it has the value already.
fn claim_word(word: &AtomicU32, value: u32) -> Result<(), Errno> {
    match word.compare_exchange(0, value, AcqRel, Acquire) {
        Ok(_) => Ok(()),
        Err(found) if found == value => Ok(()),
        Err(_) => Err(Errno::EINVAL),
    }
}
