//! The bottom half of Vshmem: how the memory of a pool is found, mapped and watched. No System V in here.
//!
//! A [`Transport`] knows one way in which kernels share memory. Each has a folder beside `src`, with all that
//! knows of it; [`table`] lists them.
//!
//! | module | subject |
//! | --- | --- |
//! | [`table`] | the transports that there are: which one a name means, and opening a pool |
//! | `handle` | an open pool, the same for all transports |
//! | [`given`] | pools that machines are given as PCI devices: what they are called |
//! | `mapping`, `reserve` | mapping ranges of a pool, taking memory for them and giving it back |
//! | `liveness` | liveness locks, by which everybody learns that a process is dead |
//! | `member` | which member of a pool this kernel is |
//! | [`ids`] | mapping this kernel's users and groups to those in pools |
//! | [`process`], `ending`, `stat` | what the kernel knows besides: start times, exec, which processes are stopped, or over before their lock is free |
//! | [`head`] | what a file has before the pool, if machines are shown it as persistent memory |
//! | `driver` | a driver's device file: sleeping on a word of a pool, and ringing other kernels |
//! | `descriptor` | the pool's descriptor, and what to do when the program closes it |
//! | `pool_ref` | names, paths and devices |
//! | `contract` | what every transport must do, as tests (feature `contract`; run by `transport-contract` in a machine) |
//!
//! [`resolve`] tells which pool a name or path means on this kernel, [`open`] opens it, and
//! [`create_resolved`] makes one that [`resolve_new`] found to be free.
//!
//! # A good guest
//! This runs inside programs that know nothing of it. So it has no heap (the crate is `no_std` and has no
//! `alloc`), takes no lock, never panics, and calls the kernel directly: it works in signal handlers, before
//! `main`, in the child of a threaded process's fork, and under another malloc, and leaves `errno` alone. Its
//! one descriptor has a high number, is closed by exec, and is checked to be the pool's before each use,
//! since programs close what they find. When it is lost it is opened again by its path; where that is
//! impossible (`chroot`, another user) memory is mapped, reserved and released through the pool's own mapping
//! instead. Only the question whether a process lives then has no answer.
//!
//! For a moment, while a file is opened, the lowest free number is taken: Linux has no other way.
#![cfg_attr(not(any(test, feature = "contract", feature = "fuzz")), no_std)]

#[cfg(any(test, feature = "contract", feature = "fuzz"))]
extern crate std;

#[cfg(feature = "contract")]
pub mod contract;
pub mod dax;
mod descriptor;
mod directory;
mod driver;
mod ending;
mod error;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
pub mod given;
mod handle;
pub mod head;
pub mod ids;
pub mod ivshmem;
mod liveness;
pub mod local;
mod mapping;
mod maps;
mod member;
mod pool_ref;
pub mod process;
mod reserve;
mod source;
pub mod stat;
mod sys;
pub mod table;
mod text;
pub mod xen;

pub use directory::each_entry;
pub use driver::Slept;
pub use error::{CreateError, DiscoverError, JoinError, MapError, OpenError, RemoveError, ResolveError};
pub use handle::Handle;
pub use liveness::{Liveness, LIVENESS_BASE};
pub use local::{
    create_local, create_resolved, create_with_head, list_local, open_local_file, page_size_for,
    remove_local, reserve_local, Local, LocalPool,
};
pub use maps::{each_mapping, Mapped};
pub use pool_ref::{Origin, PoolRef, NAME_MAX, PATH_MAX};
pub use process::namespaces_number;
pub use source::{Source, SOURCES_BASE};
pub use sys::asleep::{asleep, Awake};
pub use sys::{map_private, raw as system_call, read_file, seconds, time};
pub use table::{open, resolve, resolve_new, transport_of, transports};
pub use text::Text;

use core::fmt::Debug;
use given::Address;
use vshmem_pool::Uuid;

/// A UUID for a new pool; `None` shortly after the start of a machine whose kernel has too little entropy
/// yet.
pub fn random_uuid() -> Option<Uuid> {
    sys::random_bytes().map(Uuid::from_random)
}

/// One way in which kernels share memory.
pub trait Transport: Debug + Sync {
    /// A short name, for people.
    fn name(&self) -> &'static str;

    /// Whether this kernel is given pools by the transport, even if it has none just now.
    fn is_here(&self) -> bool {
        false
    }

    /// The meaning of a pool's name, or the address of its device, on this kernel. `default` means the first
    /// pool, unless a pool has that name.
    ///
    /// # Errors
    /// See [`DiscoverError`].
    fn find(&self, name: &[u8]) -> Result<Found, DiscoverError> {
        let address = Address::parse(name);
        let (mut meant, mut first) = (None, None::<PoolRef>);
        self.discover(&mut |pool| {
            if pool.name() == name || address.is_some() && pool.address() == address {
                meant = Some(pool.clone());
            }
            let is_before = |it: &PoolRef| (pool.address(), pool.name()) < (it.address(), it.name());
            if first.as_ref().is_none_or(is_before) {
                first = Some(pool.clone());
            }
            meant.is_none()
        })?;
        let nothing = if first.is_some() || self.is_here() { Found::Nothing } else { Found::NotHere };
        Ok(meant.or(first.filter(|_| name == b"default")).map_or(nothing, Found::Pool))
    }

    /// The pool that a path means, if it is one of a device that only this transport can open.
    fn at(&self, _path: &[u8]) -> Option<PoolRef> {
        None
    }

    /// Calls `each` for every pool that this kernel has through the transport, until it returns `false`.
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

/// The meaning of a name for a transport.
// Returned once and taken apart at once; there is no heap to put the large case on.
#[allow(clippy::large_enum_variant)]
#[derive(Debug)]
pub enum Found {
    /// This pool.
    Pool(PoolRef),
    /// No pool, though this kernel is given pools by the transport.
    Nothing,
    /// This kernel is given no pools by the transport.
    NotHere,
}
