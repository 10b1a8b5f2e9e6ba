//! Xen: domains that `xl` starts in dom0.
//!
//! A domain's file tree and its channels are served by the QEMU that xl starts for it, from Debian's package qemu-system-xen; its pool is dom0's, which a
//! process of ours, `vshmem xen own`, gives to the domains by name. `docs/xen.md` describes it.
//!
//! | module | subject |
//! | --- | --- |
//! | `launcher`, `guest` | what is asked of a launcher, on the host and in a machine |
//! | `config` | what xl is told about a domain |
//! | `namespace` | the file tree that a domain sees |
//! | `domain`, `xl` | a domain, and creating one by xl |
//! | `owner` | the process that owns a cluster's pool |

mod config;
pub mod domain;
mod guest;
pub mod launcher;
mod namespace;
mod owner;
mod xl;
