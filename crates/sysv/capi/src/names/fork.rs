//! `fork` itself, whose caller alone learns the child's pid.

use crate::names::next::Next;
use crate::pools::table::POOLS;
use crate::process::gate;
use crate::process::page::{unpack, MAX_POOLS};
use crate::process::tls;
use libc::pid_t;

static NEXT: Next = Next::new(c"fork");

/// Looks libc's function up. When the library is loaded, since that takes a lock of the loader's.
pub fn on_load() {
    NEXT.address();
}

/// fork(2).
#[no_mangle]
pub extern "C" fn fork() -> pid_t {
    // SAFETY: libc's function of that name, which has no arguments.
    let real: extern "C" fn() -> pid_t = unsafe { core::mem::transmute(NEXT.address()) };
    let child = real();
    if child > 0 {
        note_child(child as u32);
    }
    child
}

/// Notes the pid of the child that the thread has forked just now, where it has a place. Inside the gate:
/// another thread may close a pool.
fn note_child(pid: u32) {
    // SAFETY: the thread's own block.
    let forked = core::mem::take(unsafe { &mut (*tls::thread()).forked });
    if forked == [0; MAX_POOLS] {
        return;
    }
    let Ok(_gate) = gate::enter() else { return };
    for (place, child) in POOLS.iter().zip(forked) {
        if let Some(child) = unpack(child).filter(|_| place.is_open()) {
            // SAFETY: it is open, and stays so inside the gate. Where the slot is another one's by now, the
            // child has ended.
            unsafe { place.opened() }.pool.note_pid(child, pid);
        }
    }
}
