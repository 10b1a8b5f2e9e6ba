//! What can start machines, a folder for each: starting a machine, watching it and ending it is asked of a
//! [`traits::Launcher`].
//!
//! | module | subject |
//! | --- | --- |
//! | [`table`], [`running`] | the launchers that there are, and what they have started |
//! | [`traits`] | what is asked of each, on the host and in a machine |
//! | [`options`], [`starting`] | what a cluster is to be, and what starting a machine is to all launchers |
//! | [`network`] | the links between a cluster's machines |
//! | [`pool`], [`dead`] | the pool of a cluster, and what machines that died held |
//! | [`file_tree`] | the file tree that a machine sees |
//! | [`front_end`], [`log`], [`affinity`] | a machine's front end, what it prints, the cores that it runs on |

pub mod affinity;
pub mod dead;
pub mod file_tree;
pub mod front_end;
pub mod log;
pub mod network;
pub mod options;
pub mod pool;
pub mod qemu;
pub mod running;
pub mod starting;
pub mod table;
pub mod traits;

pub mod xen;
