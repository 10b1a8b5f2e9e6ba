//! Keeps the machines that run on a host near their memory: NUMA-first at run time.
//!
//! | module | subject |
//! | --- | --- |
//! | `observation` | what is seen of a host and its machines |
//! | `policy` | what to do about it: a pure function |
//! | `moves` | what there is to do, and why |
//! | `simulator` | hosts on which the policy is tried out |
//! | `host` | this host's machines, for which it decides |
//! | `report` | what is printed |

pub mod host;
pub mod moves;
pub mod observation;
pub mod policy;
pub mod report;
pub mod simulator;

/// Seconds between decisions.
pub const INTERVAL: f64 = 0.2;
