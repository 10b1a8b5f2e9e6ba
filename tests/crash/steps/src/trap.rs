//! Stopping after each store to a range of memory, one instruction at a time.
//!
//! The range is write-protected. A store to it faults; the handler opens the page, sets the processor's trap
//! flag and lets the instruction run alone; the trap behind it compares the page with what it was, and closes
//! it. So code runs at full speed between its stores, and every store is seen, whatever made it: an atomic of
//! the library or memset in libc.

use crate::single::Single;
use core::ffi::c_int;
use libc::{c_void, siginfo_t, ucontext_t};
use std::cell::{Cell, RefCell};

const PAGE: usize = 4096;
const TRAP_FLAG: i64 = 0x100;
/// Pages that one instruction can touch.
const MOST_OPEN: usize = 2;

/// A store that changed something.
#[derive(Clone, Copy)]
pub struct Store {
    /// Offset of the first byte that is another one now.
    pub offset: usize,
    /// Address of the instruction.
    pub instruction: usize,
}

struct Trap {
    base: Cell<usize>,
    len: Cell<usize>,
    armed: Cell<bool>,
    open: [Cell<usize>; MOST_OPEN],
    instruction: Cell<usize>,
    /// What the range was when it was looked at last.
    shadow: RefCell<Vec<u8>>,
    before: Cell<fn()>,
    after: Cell<fn(Store)>,
}

static TRAP: Single<Trap> = Single(Trap {
    base: Cell::new(0),
    len: Cell::new(0),
    armed: Cell::new(false),
    open: [const { Cell::new(usize::MAX) }; MOST_OPEN],
    instruction: Cell::new(0),
    shadow: RefCell::new(Vec::new()),
    before: Cell::new(|| {}),
    after: Cell::new(|_| {}),
});

/// Sets up for a range, whole pages. `before` is called before a store, `after` after each one that changed
/// something; both in the middle of whatever made the store, on its stack.
pub fn set_up(base: *mut u8, len: usize, before: fn(), after: fn(Store)) {
    let trap = TRAP.get();
    trap.base.set(base as usize);
    trap.len.set(len);
    trap.before.set(before);
    trap.after.set(after);
    *trap.shadow.borrow_mut() = vec![0; len];
    let handlers: [(c_int, extern "C" fn(c_int, *mut siginfo_t, *mut c_void)); 2] =
        [(libc::SIGSEGV, on_fault), (libc::SIGTRAP, on_trap)];
    for (signal, handler) in handlers {
        // SAFETY: all zeros is a valid sigaction; the handler has the signature that SA_SIGINFO promises.
        unsafe {
            let mut action: libc::sigaction = core::mem::zeroed();
            action.sa_sigaction = handler as usize;
            // What the handlers call is stopped after its stores, too.
            action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
            assert_eq!(libc::sigaction(signal, &action, core::ptr::null_mut()), 0);
        }
    }
}

/// From now on stores are seen.
pub fn arm() {
    let trap = TRAP.get();
    if !trap.armed.replace(true) {
        let len = trap.len.get();
        // SAFETY: the range is mapped, and nobody changes it now.
        let now = unsafe { core::slice::from_raw_parts(trap.base.get() as *const u8, len) };
        trap.shadow.borrow_mut().copy_from_slice(now);
        protect(0, len, libc::PROT_READ);
    }
}

/// From now on they are not.
pub fn disarm() {
    let trap = TRAP.get();
    if trap.armed.replace(false) {
        trap.open.iter().for_each(|page| page.set(usize::MAX));
        protect(0, trap.len.get(), libc::PROT_READ | libc::PROT_WRITE);
    }
}

fn protect(from: usize, len: usize, how: c_int) {
    // SAFETY: a part of the range, which is mapped.
    let done = unsafe { libc::mprotect((TRAP.get().base.get() + from) as *mut c_void, len, how) };
    assert_eq!(done, 0, "mprotect");
}

/// A register of the interrupted code.
///
/// # Safety
/// `context` is what a handler got.
unsafe fn register<'a>(context: *mut c_void, which: c_int) -> &'a mut i64 {
    // SAFETY: the caller's promise.
    unsafe { &mut (*context.cast::<ucontext_t>()).uc_mcontext.gregs[which as usize] }
}

extern "C" fn on_fault(_: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let trap = TRAP.get();
    // SAFETY: the kernel fills both in for SIGSEGV.
    let (address, instruction) = unsafe {
        let ip = *register(context, libc::REG_RIP);
        ((*info).si_addr() as usize, ip as usize)
    };
    let offset = address.wrapping_sub(trap.base.get());
    if !trap.armed.get() || offset >= trap.len.get() {
        eprintln!("a fault at {address:#x}, instruction {instruction:#x}, pool at {:#x}", trap.base.get());
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(3) };
    }
    let page = offset / PAGE * PAGE;
    if trap.open.iter().all(|open| open.get() == usize::MAX) {
        (trap.before.get())();
    }
    let free = trap.open.iter().find(|open| open.get() == usize::MAX);
    free.expect("an instruction stores to two pages at most").set(page);
    trap.instruction.set(instruction);
    protect(page, PAGE, libc::PROT_READ | libc::PROT_WRITE);
    // SAFETY: as above.
    unsafe { *register(context, libc::REG_EFL) |= TRAP_FLAG };
}

extern "C" fn on_trap(_: c_int, _: *mut siginfo_t, context: *mut c_void) {
    let trap = TRAP.get();
    // SAFETY: the kernel fills it in.
    let mut changed = unsafe {
        if *register(context, libc::REG_RIP) as usize == trap.instruction.get() {
            skip(context)
        } else {
            *register(context, libc::REG_EFL) &= !TRAP_FLAG;
            None
        }
    };
    for open in &trap.open {
        let page = open.replace(usize::MAX);
        if page != usize::MAX {
            changed = look(page).or(changed);
            protect(page, PAGE, libc::PROT_READ);
        }
    }
    if let Some(offset) = changed {
        (trap.after.get())(Store { offset, instruction: trap.instruction.get() });
    }
}

/// A repeated instruction stores byte after byte, thousands of times, and the trap flag stops it after each.
/// Does half of what it has yet to do for it, so that it is seen a few times. Returns the first byte that
/// changed.
///
/// # Safety
/// `context` is what a handler got.
unsafe fn skip(context: *mut c_void) -> Option<usize> {
    let trap = TRAP.get();
    // SAFETY: the caller's promise; the instruction was just run, so it can be read.
    let (code, count, to, from) = unsafe {
        let code = trap.instruction.get() as *const u8;
        (
            [*code, *code.add(1)],
            register(context, libc::REG_RCX),
            register(context, libc::REG_RDI),
            register(context, libc::REG_RSI),
        )
    };
    let n = *count as usize / 2;
    let offset = (*to as usize).wrapping_sub(trap.base.get());
    let inside = offset < trap.len.get() && n <= trap.len.get() - offset;
    let (is_set, is_copy) = (code == [0xf3, 0xaa], code == [0xf3, 0xa4]);
    if !inside || n == 0 || !(is_set || is_copy) {
        return None;
    }
    protect(0, trap.len.get(), libc::PROT_READ | libc::PROT_WRITE);
    for _ in 0..n {
        // SAFETY: what the instruction itself would do next, inside the range.
        unsafe {
            let byte = if is_set { *register(context, libc::REG_RAX) as u8 } else { *(*from as *const u8) };
            *(*to as *mut u8) = byte;
        }
        (*to, *count) = (*to + 1, *count - 1);
        *from += i64::from(is_copy);
    }
    let pages = (offset / PAGE..(offset + n).div_ceil(PAGE)).map(|page| page * PAGE);
    let changed = pages.filter_map(look).fold(None, |first, at| first.or(Some(at)));
    protect(0, trap.len.get(), libc::PROT_READ);
    changed
}

/// Compares a page with what it was. Returns the first byte that changed.
fn look(page: usize) -> Option<usize> {
    let trap = TRAP.get();
    let mut shadow = trap.shadow.borrow_mut();
    let was = &mut shadow[page..page + PAGE];
    // SAFETY: a page of the range.
    let now = unsafe { core::slice::from_raw_parts((trap.base.get() + page) as *const u8, PAGE) };
    if was == now {
        return None;
    }
    let first = was.iter().zip(now).position(|(a, b)| a != b);
    was.copy_from_slice(now);
    first.map(|i| page + i)
}
