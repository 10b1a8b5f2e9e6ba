//! `clone`, whose child may be another process in the same memory ([`crate::pools::sharers`]).

use crate::names::next::Next;
use crate::pools::sharers;
use crate::process::page::Sharer;
use core::ffi::{c_int, c_void};

static NEXT: Next = Next::new(c"clone");

/// Looks libc's function up. When the library is loaded, since that takes a lock of the loader's.
pub fn on_load() {
    NEXT.address();
}

type Function = unsafe extern "C" fn(*mut c_void) -> c_int;
/// The arguments that C declares as variable ones.
type Optional = usize;
type Clone = unsafe extern "C" fn(
    Option<Function>,
    *mut c_void,
    c_int,
    *mut c_void,
    Optional,
    Optional,
    Optional,
) -> c_int;

/// Flags by which a child is a process of its own, in the same memory, with a list of `SEM_UNDO` adjustments
/// of its own. Not so those that have a thread-local block of their own, which need not be one of libc's, or
/// a pid of their own.
const OTHERS: c_int = libc::CLONE_VM
    | libc::CLONE_SYSVSEM
    | libc::CLONE_THREAD
    | libc::CLONE_SETTLS
    | libc::CLONE_NEWPID;

/// The way a sharer begins, at the top of its stack.
#[repr(C, align(16))]
struct Start {
    function: Function,
    argument: *mut c_void,
    sharer: &'static Sharer,
}

/// clone(2), libc's function. The last three arguments, which need not be there, lie where plain ones do on
/// the machines that we know, and are garbage then.
///
/// # Safety
/// As libc demands.
#[no_mangle]
pub unsafe extern "C" fn clone(
    function: Option<Function>,
    stack: *mut c_void,
    flags: c_int,
    argument: *mut c_void,
    parent_tid: Optional,
    tls: Optional,
    child_tid: Optional,
) -> c_int {
    // SAFETY: libc's function of that name and type.
    let real: Clone = unsafe { core::mem::transmute(NEXT.address()) };
    let new = (flags & OTHERS == libc::CLONE_VM && !stack.is_null())
        .then(|| function.zip(sharers::make()))
        .flatten();
    let Some((function, sharer)) = new else {
        // SAFETY: as the caller vouches.
        return unsafe { real(function, stack, flags, argument, parent_tid, tls, child_tid) };
    };
    let top = (stack.addr() & !(align_of::<Start>() - 1)) - size_of::<Start>();
    let start = stack.with_addr(top).cast::<Start>();
    // SAFETY: the child's stack, which grows downwards, where libc, too, writes what the child begins with.
    let child = unsafe {
        start.write(Start { function, argument, sharer });
        real(Some(begin), start.cast(), flags, start.cast(), parent_tid, tls, child_tid)
    };
    // With CLONE_VFORK the child has ended by now, or runs another program in other memory.
    let shares = child > 0 && flags & libc::CLONE_VFORK == 0;
    sharers::made(sharer, shares.then_some(child as u32));
    child
}

/// All of a sharer.
unsafe extern "C" fn begin(start: *mut c_void) -> c_int {
    // SAFETY: as `clone` has written it.
    let Start { function, argument, sharer } = unsafe { start.cast::<Start>().read() };
    sharers::begin(sharer);
    // SAFETY: as the caller of `clone` vouches.
    let result = unsafe { function(argument) };
    sharers::end();
    result
}
