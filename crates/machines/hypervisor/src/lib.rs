//! One machine: what it boots, what starts it, and what may be done to it while it runs.
//!
//! From the top down:
//!
//! | module | subject |
//! | --- | --- |
//! | [`launcher`] | the interface of a launcher, and the table of all |
//! | [`qemu`], [`libvirt`], [`xen`] | a launcher each |
//! | [`running`] | a machine that runs: reaching it, giving it pools and taking them away |
//! | [`shared`] | what every launcher needs of this host |
//! | [`state`] | records of clusters and machines |
//! | [`boot`] | what machines boot |

pub mod boot;
pub mod launcher;
pub mod libvirt;
pub mod qemu;
pub mod running;
pub mod shared;
pub mod state;
pub mod xen;
