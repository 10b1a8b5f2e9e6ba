//! A pool in which an enemy writes, and an honest process that uses it.
//!
//! The input chooses a pool (fresh, or with something of everything in it, sleepers and the dead among it, as somebody left it who was
//! killed in the middle), what the enemy writes into it and when (before the pool is opened, before a call, or while a call asks its kernel for
//! something), and which calls are made with what. There is one thread, and time is a number, so each input always does the same.
//!
//! Around the pool nothing may be touched. Each call must come back by the time that SECURITY.md promises, for a lock that never comes free.

mod calls;
pub(crate) mod enemy;
mod kernel;
pub(crate) mod memory;
mod scene;

use crate::input::Input;
use kernel::Fuzzed;
use vshmem_ipc::{life, Budget, Ctx, Pool};

/// Calls in an input, at the most.
const MOST_CALLS: usize = 24;

/// Plays what the input says.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let scene = scene::choose(&mut input);
    let mem = scene.restore();
    let kernel = Fuzzed::new(mem, &mut input);
    enemy::write_some(mem, &mut input);
    let opened;
    let (pool, me) = if input.byte() & 1 == 0 {
        (scene.pool(), scene.me())
    } else {
        let Ok(pool) = Pool::open(mem) else { return };
        opened = pool;
        let Ok(member) = opened.join(scene::BOOT, b"fuzz") else {
            return;
        };
        let Some(me) = life::claim(&opened, &kernel, member, kernel::ME, 1, &mut |_| true) else {
            return;
        };
        (&opened, (me, member))
    };
    let c = &Ctx {
        pool,
        kernel: &kernel,
        me: me.0,
        pid: kernel::ME,
        member: me.1,
        budget: Budget::default(),
    };
    let mut ids = scene.ids().to_vec();
    for _ in 0..MOST_CALLS {
        if input.is_empty() {
            break;
        }
        kernel.plan(&mut input);
        calls::one(c, &mut input, &mut ids);
        kernel.is_in_time();
    }
    vshmem_ipc::leave(c);
    kernel.is_in_time();
}
