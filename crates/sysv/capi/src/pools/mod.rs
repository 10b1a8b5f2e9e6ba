//! The pools that are open, and the process in them.
//!
//! | module | subject |
//! | --- | --- |
//! | [`table`] | the places of open pools |
//! | [`by_name`] | from a pool's name to its mapping |
//! | [`state`] | the process in each pool |
//! | [`claim`] | the liveness lock that goes with a process slot |
//! | [`at_fork`], [`heirs`] | children, those that are counted and those that nobody sees |
//! | [`kernel`] | the answers of this kernel to a pool's questions |
//! | [`revoked`], [`outcome`] | pools that are taken away while they are in use, and what calls return then |
//! | [`sizes`] | the sizes of sets and segments that this process was told |

pub mod at_fork;
pub mod by_name;
pub mod claim;
pub mod heirs;
pub mod kernel;
pub mod outcome;
pub mod revoked;
pub mod sizes;
pub mod state;
pub mod table;
