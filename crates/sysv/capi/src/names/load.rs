//! Loading the library, the end of a thread, and the end of the process.

use crate::names::pthread_exit;
use crate::pools::caller::caller;
use crate::pools::table::POOLS;
use crate::pools::{at_fork, heirs, member, sharers};
use crate::process::config;
use crate::process::log::{self, Level};
use crate::process::page::{self, Page, MAX_POOLS};
use crate::thread::interrupted;
use core::ffi::c_void;

/// Runs before the program's own constructors when preloaded. Opens nothing and maps nothing.
extern "C" fn on_load() {
    config::load();
    // SAFETY: the handlers stay in memory: the library can't be unloaded. Registering them now rather than at
    // first use keeps libc's lock and its memory out of signal handlers. Where it fails, children make
    // themselves known late.
    unsafe { libc::pthread_atfork(Some(at_fork::prepare), Some(at_fork::parent), Some(heirs::after_fork)) };
    #[cfg(not(test))]
    {
        crate::names::fork::on_load();
        crate::names::clone::on_load();
        crate::names::files::on_load();
    }
    watch_threads();
    pthread_exit::on_load();
    #[cfg(not(test))]
    crate::names::user_ids::on_load();
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

/// Asks libc to tell about threads that end. Now, since libc's lock must not be met in a signal handler.
fn watch_threads() {
    let mut key = 0;
    // SAFETY: the function stays in memory: the library can't be unloaded.
    if unsafe { libc::pthread_key_create(&mut key, Some(thread_ends)) } == 0 {
        interrupted::watch_by(key);
    }
}

/// A thread that has ever waited ends: perhaps in the middle of a wait.
unsafe extern "C" fn thread_ends(_: *mut c_void) {
    if interrupted::is_waiting() {
        interrupted::abandon();
        let _errno = crate::thread::errno::ErrnoGuard::now();
        // A fault of ours must not end the process.
        let _ = std::panic::catch_unwind(|| drop(caller()));
    }
}

/// Runs at exit, after the program's own exit handlers. Those that run even later may still call: they are
/// served, and what they leave is cleaned up as if the process had been killed.
extern "C" fn on_exit() {
    let Some(page) = page::existing() else { return };
    if sharers::end() {
        return;
    }
    leave_pools(page);
    // Not under other threads, which may be inside a call.
    if is_single_threaded() {
        for place in POOLS.iter().filter(|place| place.is_open()) {
            // SAFETY: it was seen to be open.
            unsafe { place.opened() }.handle.expect_no_access();
        }
    }
}

fn leave_pools(page: &Page) {
    // Other threads may be inside a call: then the slot stays ours until the kernel drops its liveness lock
    // with us.
    let alone = is_single_threaded();
    // SAFETY: there is no other thread, and the library is not inside a call.
    if alone && unsafe { member::may_leave_all_to_parent(page) } {
        return;
    }
    let _errno = crate::thread::errno::ErrnoGuard::now();
    for index in 0..MAX_POOLS {
        // A fault of ours must not end the process otherwise than it wanted to end.
        let _ = std::panic::catch_unwind(|| member::leave(index, alone));
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

#[used]
#[link_section = ".init_array"]
static ON_LOAD: extern "C" fn() = on_load;

#[used]
#[link_section = ".fini_array"]
static ON_EXIT: extern "C" fn() = on_exit;
