//! The end of an MPI job over TCP. UCX closes an endpoint when all that was sent is acknowledged, and its TCP
//! acknowledges when the peer asks it for progress. MPICH 4.0 closes all endpoints in `MPI_Finalize`, and
//! then reads from its process manager until the other ranks have done so, too: a peer that is a little later
//! gets no acknowledgement, and both wait for ever. So a rank that has begun to close its endpoints asks for
//! progress while it waits for its process manager. No setting of UCX or MPICH changes that.

use crate::next;
use core::cell::Cell;
use core::ffi::{c_int, c_void, CStr};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicI32, Ordering::Relaxed};

/// The process manager's socket, once endpoints are closed.
static MANAGER: AtomicI32 = AtomicI32::new(NONE);
const NONE: c_int = -1;

thread_local! {
    /// The worker whose endpoints this thread closes.
    static WORKER: Cell<*mut c_void> = const { Cell::new(null_mut()) };
}

/// Milliseconds between questions for progress: the shortest time of poll(2).
const PAUSE: c_int = 1;

extern "C" {
    /// libc's `read`, by a name that nobody replaces.
    fn __read(fd: c_int, buffer: *mut c_void, length: usize) -> isize;
}

/// Notes that this thread asks for a worker's progress.
pub fn asks(worker: *mut c_void) {
    if MANAGER.load(Relaxed) != NONE {
        WORKER.set(worker);
    }
}

/// Begins to close an endpoint.
///
/// # Safety
/// As UCX's `ucp_disconnect_nb` demands.
#[no_mangle]
pub unsafe extern "C" fn ucp_disconnect_nb(endpoint: *mut c_void) -> *mut c_void {
    MANAGER.store(manager().unwrap_or(NONE), Relaxed);
    // SAFETY: as the caller vouches.
    unsafe { next::disconnect(endpoint) }
}

/// Destroys a worker.
///
/// # Safety
/// As UCX's `ucp_worker_destroy` demands.
#[no_mangle]
pub unsafe extern "C" fn ucp_worker_destroy(worker: *mut c_void) {
    MANAGER.store(NONE, Relaxed);
    WORKER.set(null_mut());
    // SAFETY: as the caller vouches.
    unsafe { next::destroy(worker) }
}

/// `read(2)`.
///
/// # Safety
/// As libc's `read` demands.
#[no_mangle]
pub unsafe extern "C" fn read(fd: c_int, buffer: *mut c_void, length: usize) -> isize {
    if fd != NONE && fd == MANAGER.load(Relaxed) {
        progress_until_readable(fd);
    }
    // SAFETY: as the caller vouches.
    unsafe { __read(fd, buffer, length) }
}

/// Asks for progress until a read would not wait.
fn progress_until_readable(fd: c_int) {
    let worker = WORKER.get();
    let mut asked = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    while !worker.is_null() {
        // SAFETY: this thread has used the worker, and has not destroyed it.
        while unsafe { next::progress(worker) } > 0 {}
        // SAFETY: one descriptor, which lives.
        let found = unsafe { libc::poll(&mut asked, 1, PAUSE) };
        // The read says what is wrong with it.
        if found != 0 {
            return;
        }
    }
}

/// The descriptor by which Hydra has named its socket.
fn manager() -> Option<c_int> {
    // SAFETY: a string.
    let value = unsafe { libc::getenv(c"PMI_FD".as_ptr()) };
    if value.is_null() {
        return None;
    }
    // SAFETY: a string of the environment.
    let value = unsafe { CStr::from_ptr(value) };
    value.to_str().ok()?.parse().ok().filter(|fd| *fd >= 0)
}
