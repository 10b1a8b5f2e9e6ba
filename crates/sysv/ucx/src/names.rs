//! The functions with UCX's names, as UCX 1.13 to 1.22 declare them (`ucs/sys/uid.h`, `ucs/sys/sys.h` and
//! `ucp/api/ucp.h`).

use crate::next;
use crate::peers::{peer, Peer};
use crate::pool::Pool;
use core::ffi::{c_int, c_ulong, c_void};

/// Kinds of name spaces.
const IPC: c_int = 0;
const PID: c_int = 3;

/// UCX's number of the initial IPC name space.
const INITIAL_IPC: u64 = 0xefff_ffff;

/// Start of each peer in the pool. UCX only compares it with an earlier answer, and takes 0 for a dead
/// process.
const START: c_ulong = 1;

/// The id of the system, which processes that share memory have in common.
#[no_mangle]
pub extern "C" fn ucs_get_system_id() -> u64 {
    Pool::of_process().map_or_else(next::system_id, |pool| pool.system_id)
}

/// The number of a name space that the process is in.
#[no_mangle]
pub extern "C" fn ucs_sys_get_ns(kind: c_int) -> u64 {
    let inode = next::namespace;
    match (Pool::of_process(), kind) {
        (None, kind) => inode(kind),
        (Some(_), IPC) => INITIAL_IPC,
        // UCX does not ask for it where its IPC name spaces differ, which it does not see any more.
        (Some(pool), PID) => pool.namespace([inode(PID), inode(IPC)]),
        (Some(pool), kind) => pool.namespace([inode(kind), 0]),
    }
}

/// 1 for the initial name space of that kind, whose processes may talk to each other; else 0.
#[no_mangle]
pub extern "C" fn ucs_sys_ns_is_default(kind: c_int) -> c_int {
    Pool::of_process().map_or_else(|| next::is_initial(kind), |_| (kind == IPC).into())
}

/// Start of the process with that pid; 0: there is none.
#[no_mangle]
pub extern "C" fn ucs_sys_get_proc_create_time(pid: c_int) -> c_ulong {
    match Pool::of_process().map_or(Peer::Unknown, |pool| peer(&pool, pid)) {
        Peer::Lives => START,
        Peer::Gone => 0,
        Peer::Unknown => next::start(pid),
    }
}

/// The beginning of UCX's `ucp_worker_attr_t`.
#[repr(C)]
pub struct WorkerAttributes {
    /// Bits of the fields that are asked for, or given.
    mask: u64,
    _thread_mode: c_int,
    address_flags: u32,
}

/// Bit of the mask: there are flags of the address.
const HAS_ADDRESS_FLAGS: u64 = 1 << 2;
/// Flag of the address: leave out transports that reach no other node.
const NET_ONLY: u32 = 1;

/// Asks a worker for its attributes, and always for all of its addresses: `sysv` does reach other nodes.
///
/// # Safety
/// As UCX demands.
#[no_mangle]
pub unsafe extern "C" fn ucp_worker_query(worker: *mut c_void, attributes: *mut WorkerAttributes) -> i8 {
    // SAFETY: as the caller vouches.
    let query = || unsafe { next::query(worker, attributes.cast()) };
    // SAFETY: UCX demands that it points to attributes; the field lies in those of each version.
    let Some(given) = (unsafe { attributes.as_mut() })
        .filter(|given| given.mask & HAS_ADDRESS_FLAGS != 0 && Pool::of_process().is_some())
    else {
        return query();
    };
    let flags = given.address_flags;
    given.address_flags = flags & !NET_ONLY;
    let status = query();
    // SAFETY: as above; it is put back as the caller had it.
    unsafe { (*attributes).address_flags = flags };
    status
}
