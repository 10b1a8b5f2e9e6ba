//! libvshmem.so: the C API of `include/vshmem.h`, and libc's System V calls for programs that know nothing of
//! Vshmem.
//!
//! | module | subject |
//! | --- | --- |
//! | [`load`] | loading the library, ending the process |
//! | [`config`] | the environment |
//! | [`export`], [`mod@syscall`], `user_ids` | the functions with libc's names |
//! | [`dlfcn`] | opening libraries and looking names up at run time |
//! | [`api`] | the functions of `vshmem.h` |
//! | [`dispatch`] | which calls go to the pool |
//! | [`calls`], [`abi`] | the calls on a pool, and C's structures |
//! | [`state`], [`pools`], [`open`] | the pools that are open, and the process in them |
//! | [`attach`] | which segments are attached, and where |
//! | [`page`], [`gate`], [`fork`], [`claim`] | what is not inherited; the one lock; around `fork`; liveness locks |
//! | [`shortcuts`], [`permit`] | what is remembered of IPC objects, for the next call on them; whom it is for |
//! | [`kernel`], [`cred`] | what the pool needs of the kernel |
//! | [`interrupted`], [`ending`] | handlers in the middle of a call: what they do, and that they end the thread |
//! | [`revoked`], [`outcome`] | pools that are taken away while they are in use, and what calls return then |
//! | `peer` | whether a peer lives that the program knows by its pid |
//! | [`user`] | addresses that the program passes |
//! | [`sizes`] | how far what the program passes reaches, where a call does not say |
//! | [`barrier`], [`reduce`] | collectives |
//! | [`log`], [`last_error`] | what `VSHMEM_LOG` asks for; why the last call failed |
//! | [`core_dump`] | what core dumps hold |
//! | [`sanitizers`] | programs that are built with sanitizers |
//! | [`errno`], [`tls`], [`raw`] | tools |
//!
//! The library is a guest in programs that don't know it. It uses no heap, holds no lock that a signal, a
//! fork or a death could leave behind, keeps errno when a call succeeds, and writes to no descriptor unless
//! `VSHMEM_LOG` asks for it.

pub mod abi;
pub mod api;
pub mod attach;
pub mod barrier;
pub mod calls;
pub mod claim;
pub mod config;
pub mod core_dump;
pub mod cred;
pub mod dispatch;
pub mod ending;
pub mod errno;
pub mod fork;
pub mod gate;
pub mod heirs;
pub mod ids;
pub mod interrupted;
pub mod kernel;
pub mod last_error;
pub mod log;
mod moved;
pub mod open;
pub mod outcome;
pub mod page;
mod peer;
pub mod permit;
pub mod pools;
pub mod raw;
pub mod reduce;
mod rests;
pub mod revoked;
pub mod sanitizers;
pub mod shortcuts;
pub mod sizes;
pub mod state;
pub mod tls;
pub mod user;

// A test program must keep its own libc functions, and its own ends.
#[cfg(not(test))]
pub mod dlfcn;
#[cfg(not(test))]
pub mod export;
#[cfg(not(test))]
pub mod forked;
#[cfg(not(test))]
mod lock_all;
#[cfg(not(test))]
mod next;
#[cfg(not(test))]
pub mod remaps;
#[cfg(not(test))]
pub mod syscall;
#[cfg(not(test))]
mod unshare;
#[cfg(not(test))]
pub mod user_ids;

pub mod load;
