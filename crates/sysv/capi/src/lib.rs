//! libvshmem.so: the C API of `include/vshmem.h`, and libc's System V calls for programs that know nothing of
//! Vshmem.
//!
//! | folder | subject |
//! | --- | --- |
//! | [`names`] | the names by which programs, the loader and libc enter the library |
//! | [`calls`] | the calls on a pool, and collectives |
//! | [`pools`] | the pools that are open, and the process in them |
//! | [`thread`] | the calling thread: its user, its waits, its errors, its addresses |
//! | [`process`] | the process: its environment, its private memory, its one lock |
//!
//! Each folder uses those below it in the table, and none above.
//!
//! The library is a guest in programs that don't know it. It uses no heap, holds no lock that a signal, a
//! fork or a death could leave behind, keeps errno when a call succeeds, and writes to no descriptor unless
//! `VSHMEM_LOG` asks for it.

pub mod calls;
pub mod names;
pub mod pools;
pub mod process;
pub mod thread;
