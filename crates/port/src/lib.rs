//! The bottom halves of Vshmem: how the memory of a pool is found, mapped and watched. No System V in here.
//!
//! | module | subject |
//! | --- | --- |
//! | [`local`] | the port for processes and containers on one kernel: files in `/dev/shm` and elsewhere |
//! | [`ivshmem`] | the port for virtual machines: the memory of a PCI device |
//! | [`xen`] | the port for Xen domains: pages that one grants to others |
//! | `handle` | an open pool |
//! | `mapping`, `reserve` | mapping ranges of a pool, taking memory for them and giving it back |
//! | `life` | life locks, by which everybody learns that a process is dead |
//! | `member` | who this kernel is among the members of a pool |
//! | [`ids`] | how this kernel's users and groups are called in pools |
//! | [`process`], `ending` | what the kernel knows besides: start times, exec, who is stopped, who is over before its lock is free |
//! | `driver` | the device files of vshmem.ko and vshmem_xen.ko: sleeping on a word of a pool, and ringing other kernels |
//! | `descriptor` | the pool's descriptor, and what to do when the program closes it |
//! | `pool_ref` | names, paths and devices |
//! | `contract` | what every port must do, as tests (feature `contract`; run by `port-contract` in a machine) |
//!
//! [`resolve`] tells which pool a name or path means on this kernel, [`open`] opens it, [`create_referred`] makes one that [`resolve_new`] found
//! to be free.
//!
//! # A good guest
//! This runs inside programs that know nothing of it. So it has no heap (the crate is `no_std` and has no `alloc`), takes
//! no lock, never panics, and calls the kernel directly: it works in signal handlers, before `main`, in the child of a threaded
//! process's fork, and under another malloc, and leaves `errno` alone. Its one descriptor has a high number, is closed by
//! exec, and is checked to be the pool's before each use, since programs close what they find. When it is lost it is opened again by
//! its path; where that is impossible (`chroot`, another user) memory is mapped, reserved and released through the pool's
//! own mapping instead. Only the question whether a process lives then has no answer.
//!
//! For a moment, while a file is opened, the lowest free number is taken: Linux has no other way.
#![cfg_attr(not(any(test, feature = "contract", feature = "fuzz")), no_std)]

#[cfg(any(test, feature = "contract", feature = "fuzz"))]
extern crate std;

#[cfg(feature = "contract")]
pub mod contract;
mod descriptor;
mod directory;
mod driver;
mod ending;
mod error;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod handle;
pub mod ids;
pub mod ivshmem;
mod life;
pub mod local;
mod mapping;
mod member;
mod pool_ref;
pub mod process;
mod reserve;
mod sys;
mod text;
pub mod xen;

pub use directory::each_entry;
pub use driver::Slept;
pub use error::{
    CreateError, DiscoverError, JoinError, MapError, OpenError, RemoveError, ResolveError,
};
pub use handle::Handle;
pub use ivshmem::{Grant, Ivshmem, GRANTS};
pub use life::{Life, LIFE_BASE};
pub use local::{
    create_local, create_referred, list_local, open_local_file, remove_local, reserve_local, Local,
    LocalPool,
};
pub use pool_ref::{Origin, PoolRef, NAME_MAX, PATH_MAX};
pub use process::namespaces_number;
pub use sys::asleep::{asleep, Awake};
pub use xen::Xen;

use ivshmem::Meaning;

/// A way of sharing memory: a bottom half.
pub trait Port: Sync {
    /// A short name, for people.
    fn name(&self) -> &'static str;

    /// Calls `each` for every pool that this kernel has through the port, until it returns `false`.
    ///
    /// # Errors
    /// See [`DiscoverError`].
    fn discover(&self, each: &mut dyn FnMut(&PoolRef) -> bool) -> Result<(), DiscoverError>;

    /// Opens a pool: maps the whole of it. Whether its contents are those of a pool is not looked at.
    ///
    /// # Errors
    /// See [`OpenError`].
    fn open(&self, pool: &PoolRef) -> Result<Handle, OpenError>;
}

/// The ports, in the order in which a name is looked for.
pub fn ports() -> [&'static dyn Port; 3] {
    [&Ivshmem, &Xen, &Local]
}

/// The pool that a name or, with a slash, a path means on this kernel. In a machine that was given pools by its
/// hypervisor, names mean those first, then local pools of the user that exist; elsewhere they mean the user's local pools,
/// which need not exist yet.
///
/// # Errors
/// See [`ResolveError`].
pub fn resolve(value: &[u8]) -> Result<PoolRef, ResolveError> {
    if value.contains(&b'/') {
        return PoolRef::at(value);
    }
    let meaning = match ivshmem::find(value) {
        Ok(Meaning::Local) => xen::find(value),
        other => other,
    };
    match meaning {
        Ok(Meaning::Pool(pool)) => Ok(pool),
        Ok(Meaning::Nothing) => PoolRef::named(value)
            .ok()
            .filter(local::exists)
            .ok_or(ResolveError::NoSuchPool),
        Ok(Meaning::Local) => PoolRef::named(value),
        Err(DiscoverError::Descriptors) => Err(ResolveError::Descriptors),
        Err(_) => Err(ResolveError::Devices),
    }
}

/// The local pool of that name or path, for who wants to make it.
///
/// # Errors
/// As those of [`resolve`]; [`ResolveError::Given`] if the name is that of a pool which this machine was given.
pub fn resolve_new(value: &[u8]) -> Result<PoolRef, ResolveError> {
    match resolve(value) {
        Ok(pool) if !pool.is_local() => Err(ResolveError::Given),
        Err(ResolveError::NoSuchPool) => PoolRef::named(value),
        other => other,
    }
}

/// The port that a pool is opened by.
pub fn port_of(pool: &PoolRef) -> &'static dyn Port {
    match pool.origin() {
        Origin::Device if xen::is_ours(pool) => &Xen,
        Origin::Device => &Ivshmem,
        Origin::Name | Origin::Path => &Local,
    }
}

/// Opens a pool by its port.
///
/// # Errors
/// See [`OpenError`].
pub fn open(pool: &PoolRef) -> Result<Handle, OpenError> {
    port_of(pool).open(pool)
}
