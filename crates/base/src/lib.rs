//! Helpers of all programs of Vshmem: errors, signals, users, locks, and files that last.
//!
//! | module | subject |
//! | --- | --- |
//! | [`error`] | the error type: a sentence, and what to do about it |
//! | [`interrupt`] | the user's wish to stop, and waits that it ends |
//! | [`user`] | users, and changing to one |
//! | [`signal_mask`], [`signal_descriptor`], [`descriptors`] | signals of programs that are started, signals as a descriptor, the limit of open files |
//! | [`process`] | processes, by pid and start time |
//! | [`directories`], [`lock`], [`stored`] | the user's directories, locks in them, and records in files |
//! | [`memory`], [`interface`] | memory and network interfaces of this kernel |
//! | [`elf`], [`library`] | ELF files, and the path of libvshmem.so |
//! | [`size`], [`document`], [`text`], [`random`] | sizes as text, documents for `--json`, texts that are safe to print, random bytes |

pub mod descriptors;
pub mod directories;
pub mod document;
pub mod elf;
pub mod error;
pub mod interface;
pub mod interrupt;
pub mod library;
pub mod lock;
pub mod memory;
pub mod process;
pub mod random;
pub mod signal_descriptor;
pub mod signal_mask;
pub mod size;
pub mod stored;
pub mod text;
pub mod user;

pub use error::{error, Error, Explain, Result};
pub use text::{plain, printable};
