//! Records of clusters and machines, which commands on the host keep.
//!
//! | module | subject |
//! | --- | --- |
//! | `record`, `machine` | records of clusters, and the state of their machines |
//! | `ports` | the ports for pools that are granted later |
//! | `disks` | files of machines that boot a system of their own |

pub mod disks;
pub mod machine;
pub mod ports;
pub mod record;
