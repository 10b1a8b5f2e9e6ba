//! The host's resources that every launcher uses for its machines.
//!
//! | module | subject |
//! | --- | --- |
//! | [`pool`], [`doorbell`], [`shm_link`] | the pool of a cluster, the back end that serves it, its file for libvirt |
//! | [`file_tree`], [`public_copy`] | the file tree that a machine sees, and copies in it |
//! | [`root_server`] | the server of the root that machines have as a disk |
//! | [`sandbox`], [`confined`], [`set_id`], [`acl`] | the confinement of a VMM on this host |
//! | [`network`], [`uplink`], [`sockets`] | links between machines, a network outside, a VMM's sockets |
//! | [`passed`], [`image`] | devices of the host that a machine has for itself, images of disks |
//! | [`affinity`], [`pins`] | processors of threads |
//! | [`log`], [`logs`] | output of machines and of VMMs |
//! | [`front_end`], [`dead`] | a machine's front end, and declaring machines dead |
//! | [`xml`] | XML that is written |

pub mod acl;
pub mod affinity;
pub mod confined;
pub mod dead;
pub mod doorbell;
pub mod file_tree;
pub mod front_end;
pub mod image;
pub mod log;
pub mod logs;
pub mod network;
pub mod passed;
pub mod pins;
pub mod pool;
pub mod public_copy;
pub mod root_server;
pub mod sandbox;
pub mod set_id;
pub mod shm_link;
pub mod sockets;
pub mod uplink;
pub mod xml;
