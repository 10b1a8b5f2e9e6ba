//! A pool in which an enemy writes, and an honest process that uses it.
//!
//! The input chooses a pool (fresh, or with something of everything in it, sleepers and the dead among it, as somebody left it who was
//! killed in the middle), what the enemy writes into it and when (before the pool is opened, before a call, or while a call asks its kernel for
//! something), and which calls are made with what. There is one thread, and time is a number, so each input always does the same.
//!
//! Around the pool nothing may be touched, nor behind the caller's buffers, and what stands before them must not get into the pool. Each call must
//! come back in time: by the clock that locks are waited for with, by the number of questions to its kernel, and by the processor's time. Most
//! calls have a small budget, so one that looks at more than it pays for is found, and each place where a budget may end is seen.

mod buffer;
mod calls;
pub(crate) mod enemy;
mod kernel;
mod lies;
pub(crate) mod memory;
mod scene;

use crate::input::Input;
use buffer::Secret;
use kernel::Fuzzed;
use std::sync::{Mutex, PoisonError};
use vshmem_ipc::{life, Budget, Ctx, Pool};
use vshmem_pool::budget::CALL;

/// Calls in an input, at the most.
const MOST_CALLS: usize = 24;

/// Plays what the input says.
pub fn run(bytes: &[u8]) {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let mut input = Input::new(bytes);
    let secret = Secret::of(bytes);
    let scene = scene::choose(&mut input);
    let mem = scene.restore();
    let kernel = Fuzzed::new(mem, &mut input);
    enemy::write_some(mem, &mut input);
    let opened;
    let (pool, me) = if input.byte() & 1 == 0 {
        (scene.pool(), scene.me())
    } else {
        let Ok(pool) = Pool::open(mem) else { return };
        kernel.begin(CALL, calls::tables(&pool));
        opened = pool;
        let Ok(member) = opened.join(scene::BOOT, b"fuzz") else {
            return;
        };
        let Some(me) = life::claim(&opened, &kernel, member, kernel::ME, 1, &mut |_| true) else {
            return;
        };
        (&opened, (me, member))
    };
    let calling = |budget| {
        let units = budget_of(budget);
        kernel.begin(units, calls::tables(pool));
        Ctx {
            pool,
            kernel: &kernel,
            me: me.0,
            pid: kernel::ME,
            member: me.1,
            budget: Budget::new(units),
        }
    };
    let mut ids = scene.ids().to_vec();
    for _ in 0..MOST_CALLS {
        if input.is_empty() {
            break;
        }
        kernel.plan(&mut input);
        let c = &calling(input.byte());
        calls::one(c, secret, &mut input, &mut ids);
        kernel.is_in_time();
    }
    vshmem_ipc::leave(&calling(ALL - 1));
    kernel.is_in_time();
    secret.is_kept(mem);
}

/// The choice of a call that has all that there is to spend: a liar makes it last, so there are few.
const ALL: u8 = 255;

/// What a call has to spend: from a few looks to some ten thousand.
fn budget_of(choice: u8) -> u64 {
    match choice {
        ALL => CALL,
        n => 1 << (n / 16 + 5) | u64::from(n % 16) << (n / 16 + 1),
    }
}
