//! QEMU by way of libvirt: machines are its domains, which virsh and virt-manager list and can end.
//!
//! They are transient domains: what they boot, and the sockets and pools that they have, go with the cluster,
//! so a definition that outlived it could not be started. libvirt is asked by its program `virsh`, which only
//! users of this launcher need.
//!
//! | module | subject |
//! | --- | --- |
//! | `launcher`, `unfit` | a launcher's interface, and the options that this one can't serve |
//! | [`uri`] | the libvirt that starts machines, and the user of its QEMU |
//! | `domain`, `devices`, `tuning` | the description of a domain: all of it, its devices, its cores and memory |
//! | `network` | its cards, and the network between the machines of a cluster |
//! | `files` | the files of this host that a domain sees, and those that its QEMU opens |
//! | `names` | the names of domains |
//!
//! Asking libvirt, and a domain that runs, are in [`crate::running`].

mod devices;
mod domain;
mod files;
pub mod launcher;
mod names;
mod network;
mod tuning;
mod unfit;
pub mod uri;
