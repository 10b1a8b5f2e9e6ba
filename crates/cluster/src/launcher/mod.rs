//! Launchers, which start machines, watch and end them, a folder for each. [`traits::Launcher`] is their
//! interface.
//!
//! | module | subject |
//! | --- | --- |
//! | [`table`], [`running`] | all launchers, and what they have started |
//! | [`traits`] | a launcher's interface, on the host and in a machine |
//! | [`options`], [`starting`] | options of a new cluster, and what launchers share in starting a machine |
//! | [`network`] | the links between a cluster's machines |
//! | [`pool`], [`dead`] | the pool of a cluster, and declaring machines dead |
//! | [`file_tree`], [`public_copy`] | the file tree that a machine sees, and what is copied into it |
//! | [`front_end`], [`log`], [`affinity`], [`pins`] | a machine's front end, its logs, its cores |
//! | [`xml`] | XML that is written |

pub mod affinity;
pub mod dead;
pub mod file_tree;
pub mod front_end;
pub mod libvirt;
pub mod log;
pub mod network;
pub mod options;
pub mod pins;
pub mod pool;
pub mod public_copy;
pub mod qemu;
pub mod running;
pub mod starting;
pub mod table;
pub mod traits;
pub mod xen;
pub mod xml;
