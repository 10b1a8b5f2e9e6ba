//! The names by which programs, the loader and libc enter the library.
//!
//! | module | subject |
//! | --- | --- |
//! | [`load`] | loading the library, the end of a thread and of the process |
//! | [`api`] | the functions of `vshmem.h` |
//! | `sysv`, `syscall` | libc's System V calls, and its `syscall` |
//! | [`dispatch`] | the calls that go to the pool, and those that go to the kernel |
//! | `files` | libc's functions that open files, for those of `/proc` that tell IPC objects and limits |
//! | `dlfcn` | opening libraries and looking names up at run time |
//! | `fork`, `clone`, `unshare`, `user_ids` | libc's functions that change what a pool knows of a process |
//! | `mappings`, `mlockall` | libc's functions that change attachments, or would fill pools with memory |
//! | [`pthread_exit`] | the end of a thread in a handler that has interrupted a call |
//! | `next` | libc's own functions, behind those of the same names here |

pub mod api;
pub mod dispatch;
pub mod load;
pub mod pthread_exit;

// A test program must keep its own libc functions.
#[cfg(not(test))]
pub mod clone;
#[cfg(not(test))]
pub mod dlfcn;
#[cfg(not(test))]
pub mod files;
#[cfg(not(test))]
pub mod fork;
#[cfg(not(test))]
pub mod mappings;
#[cfg(not(test))]
mod mlockall;
#[cfg(not(test))]
mod next;
#[cfg(not(test))]
pub mod syscall;
#[cfg(not(test))]
pub mod sysv;
#[cfg(not(test))]
mod unshare;
#[cfg(not(test))]
pub mod user_ids;
