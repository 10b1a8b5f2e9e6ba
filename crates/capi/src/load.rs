//! When the library is loaded, and when the process ends.

use crate::log::{self, Level};
use crate::page::{self, MAX_POOLS};
use crate::{config, ending, fork, gate, interrupted, state};
use core::ffi::c_int;

extern "C" {
    fn pthread_atfork(
        prepare: extern "C" fn(),
        parent: extern "C" fn(),
        child: extern "C" fn(),
    ) -> c_int;
}

/// Runs before the program's own constructors when preloaded. Opens nothing and maps nothing.
extern "C" fn on_load() {
    config::load();
    // SAFETY: the handlers stay in memory: the library can't be unloaded. Registering them now rather than at first use
    // keeps libc's lock and its memory out of signal handlers. Where it fails, children make themselves known late.
    unsafe { pthread_atfork(fork::prepare, fork::parent, fork::child) };
    interrupted::on_load();
    ending::on_load();
    let config = config::config();
    match config.mistake() {
        Some(mistake) => log::say(Level::Error, format_args!("{mistake}")),
        None => log::say(
            Level::Info,
            format_args!(
                "libvshmem {} is loaded; {} to the pool {}",
                env!("CARGO_PKG_VERSION"),
                config.keys_in_words(),
                config.pool
            ),
        ),
    }
}

/// Runs at exit, after the program's own exit handlers. Those that run even later may still call: they are served, and
/// what they leave is cleaned up as if the process had been killed.
extern "C" fn on_exit() {
    if page::existing().is_none() {
        return;
    }
    let _errno = crate::errno::ErrnoGuard::now();
    let Ok(gate) = gate::enter() else { return };
    // Other threads may be inside a call: then the slot stays ours until the kernel drops its liveness lock
    // with us.
    let alone = is_single_threaded();
    for index in 0..MAX_POOLS {
        // A fault of ours must not end the process otherwise than it wanted to end.
        let leave = std::panic::AssertUnwindSafe(|| state::leave(&gate, index, alone));
        let _ = std::panic::catch_unwind(leave);
    }
}

/// Has this process never had another thread, or none any more as far as libc knows?
fn is_single_threaded() -> bool {
    extern "C" {
        /// libc's own flag, in glibc from 2.32 on.
        static __libc_single_threaded: u8;
    }
    let flag = &raw const __libc_single_threaded;
    // SAFETY: libc keeps it up to date where it has it; it is only ever wrong on the safe side.
    !flag.is_null() && unsafe { flag.read_volatile() } != 0
}

// A libc without the flag is fine.
core::arch::global_asm!(".weak __libc_single_threaded");

/// A mistake of ours shall not write to the program's terminal; [`crate::errno::guard`] turns it into an error.
pub fn silence_panics() {
    std::panic::set_hook(Box::new(|_| {}));
}

#[used]
#[link_section = ".init_array"]
static ON_LOAD: extern "C" fn() = on_load;

#[used]
#[link_section = ".fini_array"]
static ON_EXIT: extern "C" fn() = on_exit;
