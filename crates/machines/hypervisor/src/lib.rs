//! One machine: its software, its launcher, and the changes that can be made while it runs.
//!
//! From the top down:
//!
//! | module | subject |
//! | --- | --- |
//! | [`launcher`] | the interface of a launcher, and the table of all |
//! | [`qemu`], [`libvirt`], [`xen`] | a launcher each |
//! | [`running`] | a machine that runs: reaching it, granting it pools and revoking them |
//! | [`shared`] | the host's resources that every launcher uses |
//! | [`template`] | machines that others thaw from |
//! | [`state`] | records of clusters and machines |
//! | [`boot`] | the software of machines |

pub mod boot;
pub mod launcher;
pub mod libvirt;
pub mod qemu;
pub mod running;
pub mod shared;
pub mod state;
pub mod template;
pub mod xen;
