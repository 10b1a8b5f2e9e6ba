//! The description of a cluster, by a file or by the options of `vshmem up`: both are declared by
//! [`cluster::Description`], which becomes the options of the cluster.
//!
//! | module | subject |
//! | --- | --- |
//! | [`cluster`], [`network`], `values` | the description of a cluster, and of its networks |
//! | [`mod@file`] | the file of a description, and the places of mistakes in it |
//! | [`fault`] | a mistake in a description |
//! | [`mod@via`] | the launcher of the machines |
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
mod values;
pub mod via;
