//! QEMU by way of libvirt: machines are its domains, which virsh and virt-manager list and can end.
//!
//! They are transient domains: what they boot, and the sockets and pools that they have, go with the cluster,
//! so a definition that outlived it could not be started. libvirt is asked by its program `virsh`, which is
//! needed by those only who start machines so.
//!
//! | module | subject |
//! | --- | --- |
//! | `launcher`, `unfit` | a launcher's interface, and what can't be asked of this one |
//! | [`virsh`] | asking libvirt |
//! | [`uri`] | which libvirt starts machines, and as whom its QEMU runs |
//! | `domain`, `devices`, `tuning` | the description of a domain: all of it, its devices, its cores and memory |
//! | `network` | its cards, and the network between the machines of a cluster |
//! | `files` | what a domain sees of this host, and files that its QEMU opens |
//! | [`managed`], `names` | a domain that was started, and what it is called |

mod devices;
mod domain;
mod files;
pub mod launcher;
mod names;
mod network;
mod tuning;
mod unfit;
pub mod uri;
