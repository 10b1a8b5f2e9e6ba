//! What commands on the host store about clusters and machines, and where.
//!
//! | module | subject |
//! | --- | --- |
//! | `record`, `machine` | records of clusters, and the state of their machines |
//! | `ports`, `share` | parts of records |
//! | `disks` | files of machines that boot a system of their own |
//! | `uplink` | the network outside of a cluster that its machines are on |
//! | `settings`, `exported` | a machine's settings, on its kernel's command line or in its seed |

pub mod disks;
pub mod exported;
pub mod machine;
pub mod ports;
pub mod record;
pub mod settings;
pub mod share;
pub mod uplink;
