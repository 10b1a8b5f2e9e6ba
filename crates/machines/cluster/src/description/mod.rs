//! A cluster as a file describes it, or the options of `vshmem up`: both become a [`cluster::Description`],
//! and that becomes what is started.
//!
//! | module | subject |
//! | --- | --- |
//! | [`cluster`], [`network`] | what can be said of a cluster, and of its networks |
//! | [`mod@file`] | reading that from a file, and where in it a mistake is |
//! | [`fault`] | a mistake in a description |
//! | [`mod@via`] | what starts the machines |
//! | [`resolve`], [`machines`], [`devices`], [`pools`], `uplink` | the machines, their devices, pools and networks that are meant, with every default |

pub mod cluster;
pub mod devices;
pub mod fault;
pub mod file;
pub mod machines;
pub mod network;
pub mod pools;
pub mod resolve;
#[cfg(test)]
pub mod testing;
mod uplink;
pub mod via;
