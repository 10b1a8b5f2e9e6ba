//! `clone`, whose child may be another process in the same memory ([`crate::pools::sharers`]), or one with
//! the same `SEM_UNDO` adjustments ([`crate::pools::lists`]).

use crate::names::next::Next;
use crate::pools::lists::{self, Lent};
use crate::pools::{lend, sharers};
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
const OWN_LIST: c_int =
    libc::CLONE_VM | libc::CLONE_SYSVSEM | libc::CLONE_THREAD | libc::CLONE_SETTLS | libc::CLONE_NEWPID;

/// Flags by which a child is a process like one of `fork`, but that it shares its parent's list.
const SAME_LIST: c_int = libc::CLONE_VM | libc::CLONE_SYSVSEM | libc::CLONE_THREAD | libc::CLONE_SETTLS;

/// What of a child is known to this library. It lies on the child's stack: there is no heap.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Copy)]
enum Child {
    /// It has its parent's memory.
    Sharer(&'static Sharer),
    /// It has its parent's lists.
    Lists(Lent),
}

impl Child {
    /// One that is made with these flags. `None`: one of which nothing has to be known.
    fn of(flags: c_int) -> Option<Child> {
        if flags & OWN_LIST == libc::CLONE_VM {
            sharers::make().map(Child::Sharer)
        } else if flags & SAME_LIST == libc::CLONE_SYSVSEM {
            lend::lend().map(Child::Lists)
        } else {
            None
        }
    }
}

/// The way such a child begins, at the top of its stack.
#[repr(C, align(16))]
struct Start {
    function: Function,
    argument: *mut c_void,
    child: Child,
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
    let known =
        function.filter(|_| !stack.is_null()).and_then(|function| Some((function, Child::of(flags)?)));
    let Some((function, child)) = known else {
        // SAFETY: as the caller vouches.
        return unsafe { real(function, stack, flags, argument, parent_tid, tls, child_tid) };
    };
    let top = (stack.addr() & !(align_of::<Start>() - 1)) - size_of::<Start>();
    let start = stack.with_addr(top).cast::<Start>();
    // SAFETY: the child's stack, which grows downwards, where libc, too, writes what the child begins with.
    let pid = unsafe {
        start.write(Start { function, argument, child });
        real(Some(begin), start.cast(), flags, start.cast(), parent_tid, tls, child_tid)
    };
    match child {
        Child::Sharer(sharer) => {
            // With CLONE_VFORK it has ended by now, or runs another program in other memory.
            let shares = pid > 0 && flags & libc::CLONE_VFORK == 0;
            sharers::made(sharer, shares.then_some(pid as u32));
        }
        Child::Lists(lists) => lists::lent(&lists),
    }
    pid
}

/// All that such a child does.
unsafe extern "C" fn begin(start: *mut c_void) -> c_int {
    // SAFETY: as `clone` has written it.
    let Start { function, argument, child } = unsafe { start.cast::<Start>().read() };
    match &child {
        Child::Sharer(sharer) => sharers::begin(sharer),
        Child::Lists(lists) => lists::begin_in_child(lists),
    }
    // SAFETY: as the caller of `clone` vouches.
    let result = unsafe { function(argument) };
    sharers::end();
    result
}
