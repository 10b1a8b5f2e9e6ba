//! What commands on the host do with clusters.

pub mod cluster;
pub mod names;
pub mod restart;
pub mod up;
pub mod users;
pub mod wait;
