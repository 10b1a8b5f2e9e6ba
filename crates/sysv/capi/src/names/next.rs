//! libc's functions of which this library has the names, too.

use core::ffi::{c_void, CStr};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A function of libc, or of another library that stands between this one and libc.
pub struct Next {
    name: &'static CStr,
    at: AtomicUsize,
}

impl Next {
    /// The next function of this name after this library's.
    pub const fn new(name: &'static CStr) -> Next {
        Next { name, at: AtomicUsize::new(0) }
    }

    /// The function's address. Looked up at the first use: a library that was loaded before this one may call
    /// before `load` has run.
    pub fn address(&self) -> usize {
        match self.at.load(Relaxed) {
            0 => self.find(),
            at => at,
        }
    }

    #[cold]
    fn find(&self) -> usize {
        // SAFETY: a string; the loader is there, for it is being asked for something.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        let at = if found.is_null() { missing as *const () as usize } else { found as usize };
        self.at.store(at, Relaxed);
        at
    }
}

/// Stands in for a function that libc does not have.
extern "C" fn missing() -> *mut c_void {
    core::ptr::null_mut()
}

/// Does the address lie in the libc that this library uses? Not so what another interposer has under the same
/// name, nor the libc of another name space.
pub fn is_in_libc(address: *const c_void) -> bool {
    // SAFETY: takes nothing; the text is a part of libc, which nobody interposes.
    let of_libc = unsafe { libc::gnu_get_libc_version() };
    base(address).is_some_and(|base_of_it| base(of_libc.cast()) == Some(base_of_it))
}

/// The beginning of the library that the address lies in.
fn base(address: *const c_void) -> Option<usize> {
    let mut info = libc::Dl_info {
        dli_fname: core::ptr::null(),
        dli_fbase: core::ptr::null_mut(),
        dli_sname: core::ptr::null(),
        dli_saddr: core::ptr::null_mut(),
    };
    // SAFETY: any address may be asked about.
    let known = unsafe { libc::dladdr(address, &mut info) } != 0;
    known.then_some(info.dli_fbase as usize)
}
