//! Xen: domains that `xl` starts in dom0.
//!
//! The QEMU that xl starts for a domain serves its file tree and its channels; it comes with Debian's package
//! qemu-system-xen. The pool is dom0's: a process of ours, `vshmem xen own`, gives it to the domains by name.
//! `docs/xen.md` describes it.
//!
//! | module | subject |
//! | --- | --- |
//! | `launcher` | a launcher's interface |
//! | `config` | the configuration of a domain |
//! | `namespace` | the file tree that a domain sees |
//! | `xl` | creating a domain by xl |
//! | `owner` | the process that owns a cluster's pool |

mod config;
pub mod launcher;
mod namespace;
mod owner;
mod xl;
