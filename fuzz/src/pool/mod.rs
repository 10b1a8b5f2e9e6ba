//! A pool in which an enemy writes, and an honest process that uses it.
//!
//! The input chooses a pool (fresh, or with something of everything in it, sleepers and the dead among it, as
//! somebody left it who was killed in the middle), what the enemy writes into it and when (before the pool is
//! opened, before a call, or while a call asks its kernel for something), and which calls are made with what.
//! There is one thread, and time is a number, so each input always does the same.
//!
//! Around the pool nothing may be touched, nor behind the caller's buffers, and what stands before them must
//! not get into the pool. Each call must come back in time: by the clock that locks are waited for with, by
//! the number of questions to its kernel, and by the processor's time. Most calls have a small budget, so one
//! that looks at more than it pays for is found, and each place where a budget may end is seen.

mod buffer;
mod calls;
pub(crate) mod enemy;
mod kernel;
mod lies;
pub(crate) mod memory;
pub(crate) mod scene;
mod steps;
mod written;

use crate::input::Input;
use buffer::Secret;
use kernel::Fuzzed;
use scene::Scene;
use std::sync::{Mutex, PoisonError};
use vshmem_ipc::{liveness, Budget, Ctx, Pool};
use vshmem_pool::budget::CALL;

/// Plays what the input says.
pub fn run(bytes: &[u8]) {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let mut input = Input::new(bytes);
    let secret = Secret::of(bytes);
    let scene = scene::choose(&mut input);
    play(scene, secret, &mut input);
    secret.is_kept(scene.mem());
    steps::are_enough();
}

/// What happens to one pool.
fn play(scene: &Scene, secret: Secret, input: &mut Input) {
    let mem = scene.mem();
    let kernel = Fuzzed::new(mem, input);
    let mut purse = Purse::new(input);
    enemy::write_some(mem, input);
    let opened;
    let (pool, me) = if input.byte() < NEWCOMER {
        (scene.pool(), scene.me())
    } else {
        let Ok(pool) = Pool::open(mem) else { return };
        kernel.begin(CALL, calls::tables(&pool));
        opened = pool;
        let Ok(member) = opened.join(scene::BOOT, b"fuzz") else {
            return;
        };
        let Some(me) = liveness::claim(&opened, &kernel, member, kernel::ME, 1, &mut |_| true) else {
            return;
        };
        (&opened, (me, member))
    };
    let calling = |units| {
        kernel.begin(units, calls::tables(pool));
        Ctx {
            pool,
            kernel: &kernel,
            me: me.0,
            pid: kernel::ME,
            namespace: 0,
            member: me.1,
            budget: Budget::new(units),
        }
    };
    let mut ids = scene.ids().to_vec();
    while !input.is_empty() {
        let times = kernel.plan(input);
        let choice = input.byte();
        let begun = *input;
        for _ in 0..times {
            *input = begun;
            let c = &calling(purse.take(choice));
            calls::one(c, &kernel, secret, input, &mut ids);
            kernel.is_in_time();
        }
    }
    vshmem_ipc::leave(&calling(purse.last));
    kernel.is_in_time();
}

/// Who is chosen by this number and those beyond it has not opened the pool before the enemy wrote. Such a
/// one can spend much, so there are few.
const NEWCOMER: u8 = 224;

/// What calls have to spend: most have little, so that an enemy can't make an input last, and every place
/// where a budget ends is seen.
struct Purse {
    left: u64,
    /// For the call that ends it all.
    last: u64,
}

impl Purse {
    /// For all calls of an input as a rule,
    const RULE: u64 = 1 << 18;
    /// and for one when that is spent.
    const LEAST: u64 = 1 << 12;

    fn new(input: &mut Input) -> Purse {
        let last = Purse::amount(input.byte());
        Purse { left: last.max(Purse::RULE), last }
    }

    /// From a dozen looks to all that a call may have. Two of three have enough for hundreds.
    fn amount(choice: u8) -> u64 {
        let n = u64::from(choice);
        match choice {
            u8::MAX => CALL,
            _ => (128 + (n & 127)) << ((n * n * n) >> 20),
        }
    }

    fn take(&mut self, choice: u8) -> u64 {
        let units = Purse::amount(choice).min(self.left.max(Purse::LEAST));
        self.left = self.left.saturating_sub(units);
        units
    }
}
