//! Balancing of machines that run: they are kept near their memory (NUMA-first at run time).
//!
//! | module | subject |
//! | --- | --- |
//! | `observation` | a host and its machines, as the policy sees them |
//! | `policy` | the policy: a pure function from observations to moves |
//! | `moves` | the moves that it decides on, and their reasons |
//! | `host` | the machines of this host, for which it decides |

pub mod host;
pub mod moves;
pub mod observation;
pub mod policy;

/// Seconds between decisions, unless others are asked for.
pub const INTERVAL: f64 = 0.2;
