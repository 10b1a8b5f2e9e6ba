//! The functions of libc that change the effective user: after them shortcuts are remembered anew
//! ([`crate::thread::permit`]).

use crate::names::next::Next;
use crate::process::raw::syscall;
use crate::thread::permit;
use core::ffi::{c_int, c_long, c_void};
use libc::uid_t;

/// Says whether the program finds these functions before libc's. When the library is loaded, since looking
/// names up takes a lock of the loader's.
pub fn on_load() {
    for next in [&SETUID, &SETEUID, &SETREUID, &SETRESUID] {
        next.address();
    }
    // SAFETY: a string; the loader is there.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"seteuid".as_ptr()) };
    permit::watch(found == seteuid as *mut c_void);
}

/// Defines functions of these names, which call the next ones of the same names.
macro_rules! changes_user {
    ($($(#[$doc:meta])* $name:ident, $next:ident($($argument:ident),+);)+) => {$(
        static $next: Next = match core::ffi::CStr::from_bytes_with_nul(
            concat!(stringify!($name), "\0").as_bytes(),
        ) {
            Ok(name) => Next::new(name),
            Err(_) => panic!("a name"),
        };

        $(#[$doc])*
        #[no_mangle]
        pub extern "C" fn $name($($argument: uid_t),+) -> c_int {
            let next = $next.address();
            // SAFETY: libc's function of that name, which has these arguments.
            let real: extern "C" fn($($argument: uid_t),+) -> c_int = unsafe { core::mem::transmute(next) };
            let result = real($($argument),+);
            permit::user_changed();
            result
        }
    )+};
}

changes_user! {
    /// setuid(2).
    setuid, SETUID(user);
    /// seteuid(3).
    seteuid, SETEUID(effective);
    /// setreuid(2).
    setreuid, SETREUID(user, effective);
    /// setresuid(2).
    setresuid, SETRESUID(user, effective, saved);
}

/// A change of the user by the number of its system call, for the calling thread alone.
pub fn by_number(number: c_long, a: usize, b: usize, c: usize) -> isize {
    // SAFETY: takes numbers only.
    let result = unsafe { syscall!(number, a, b, c) };
    permit::user_changed();
    result
}
