//! UCX's own functions, which would be called if this library were not there.

use core::ffi::{c_char, c_int, c_uint, c_ulong, c_void, CStr};
use core::mem::transmute;
use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};

/// UCX's library of helpers.
const UCS: &CStr = c"libucs.so.0";
/// UCX's library of protocols.
const UCP: &CStr = c"libucp.so.0";

/// `UCS_OK`.
pub const OK: i8 = 0;
/// `UCS_ERR_UNSUPPORTED`.
const UNSUPPORTED: i8 = -22;

/// The id of the system, made of the boot id.
pub fn system_id() -> u64 {
    type Function = unsafe extern "C" fn() -> u64;
    // SAFETY: UCX's function of this type.
    look_up(c"ucs_get_system_id", UCS).map_or(0, |f| unsafe { transmute::<*mut c_void, Function>(f)() })
}

/// The inode of a name space of that kind.
pub fn namespace(kind: c_int) -> u64 {
    type Function = unsafe extern "C" fn(c_int) -> u64;
    // SAFETY: UCX's function of this type; it takes any number.
    look_up(c"ucs_sys_get_ns", UCS).map_or(0, |f| unsafe { transmute::<*mut c_void, Function>(f)(kind) })
}

/// 1 for the initial name space of that kind, else 0.
pub fn is_initial(kind: c_int) -> c_int {
    type Function = unsafe extern "C" fn(c_int) -> c_int;
    look_up(c"ucs_sys_ns_is_default", UCS)
        // SAFETY: UCX's function of this type; it takes any kind, or fails as it would without this library.
        .map_or(0, |f| unsafe { transmute::<*mut c_void, Function>(f)(kind) })
}

/// Start of a process of this kernel; 0: there is none with this pid.
pub fn start(pid: c_int) -> c_ulong {
    type Function = unsafe extern "C" fn(c_int) -> c_ulong;
    look_up(c"ucs_sys_get_proc_create_time", UCS)
        // SAFETY: UCX's function of this type; it takes any number.
        .map_or(0, |f| unsafe { transmute::<*mut c_void, Function>(f)(pid) })
}

/// Allocates a segment.
///
/// # Safety
/// As UCX's `ucs_sysv_alloc` demands.
pub unsafe fn allocate(
    size: *mut usize,
    most: usize,
    address: *mut *mut c_void,
    flags: c_int,
    name: *const c_char,
    id: *mut c_int,
) -> i8 {
    type Function =
        unsafe extern "C" fn(*mut usize, usize, *mut *mut c_void, c_int, *const c_char, *mut c_int) -> i8;
    look_up(c"ucs_sysv_alloc", UCS).map_or(UNSUPPORTED, |f| {
        // SAFETY: UCX's function of this type, and the caller vouches for the arguments.
        unsafe { transmute::<*mut c_void, Function>(f)(size, most, address, flags, name, id) }
    })
}

/// Asks a worker for its attributes.
///
/// # Safety
/// As UCX's `ucp_worker_query` demands.
pub unsafe fn query(worker: *mut c_void, attributes: *mut c_void) -> i8 {
    type Function = unsafe extern "C" fn(*mut c_void, *mut c_void) -> i8;
    look_up(c"ucp_worker_query", UCP)
        // SAFETY: UCX's function of this type, and the caller vouches for the arguments.
        .map_or(UNSUPPORTED, |f| unsafe { transmute::<*mut c_void, Function>(f)(worker, attributes) })
}

/// Asks a worker for progress. An MPI does so all the time while it waits, so the function is looked up once.
///
/// # Safety
/// As UCX's `ucp_worker_progress` demands.
pub unsafe fn progress(worker: *mut c_void) -> c_uint {
    type Function = unsafe extern "C" fn(*mut c_void) -> c_uint;
    static FOUND: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
    let mut found = FOUND.load(Relaxed);
    if found.is_null() {
        found = look_up(c"ucp_worker_progress", UCP).unwrap_or(core::ptr::null_mut());
        FOUND.store(found, Relaxed);
    }
    if found.is_null() {
        return 0;
    }
    // SAFETY: UCX's function of this type, in a library that stays; the caller vouches for the worker.
    unsafe { transmute::<*mut c_void, Function>(found)(worker) }
}

/// Begins to close an endpoint.
///
/// # Safety
/// As UCX's `ucp_disconnect_nb` demands.
pub unsafe fn disconnect(endpoint: *mut c_void) -> *mut c_void {
    type Function = unsafe extern "C" fn(*mut c_void) -> *mut c_void;
    // An error stands in a pointer, as UCX has it.
    look_up(c"ucp_disconnect_nb", UCP).map_or(isize::from(UNSUPPORTED) as *mut c_void, |f| {
        // SAFETY: UCX's function of this type, and the caller vouches for the argument.
        unsafe { transmute::<*mut c_void, Function>(f)(endpoint) }
    })
}

/// Destroys a worker.
///
/// # Safety
/// As UCX's `ucp_worker_destroy` demands.
pub unsafe fn destroy(worker: *mut c_void) {
    type Function = unsafe extern "C" fn(*mut c_void);
    if let Some(f) = look_up(c"ucp_worker_destroy", UCP) {
        // SAFETY: UCX's function of this type, and the caller vouches for the argument.
        unsafe { transmute::<*mut c_void, Function>(f)(worker) }
    }
}

/// The function that the caller would have found: the next one of the program and what it was linked with, or
/// else that of a library which was opened for a plug-in alone, as Open MPI does. That stays loaded from then
/// on: a function that was found may be called when the plug-in has been closed, and opened once more.
fn look_up(name: &CStr, library: &CStr) -> Option<*mut c_void> {
    // SAFETY: strings. The handle is given back at once; the library stays.
    let found = unsafe {
        let next = libc::dlsym(libc::RTLD_NEXT, name.as_ptr());
        let opened = match next.is_null() {
            true => {
                let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
                libc::dlopen(library.as_ptr(), flags)
            }
            false => core::ptr::null_mut(),
        };
        if opened.is_null() {
            next
        } else {
            let found = libc::dlsym(opened, name.as_ptr());
            libc::dlclose(opened);
            found
        }
    };
    (!found.is_null()).then_some(found)
}
