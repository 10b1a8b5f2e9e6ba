//! The pools that are open, and the process in them.
//!
//! | module | subject |
//! | --- | --- |
//! | [`table`] | the places of open pools |
//! | [`by_name`], [`open`] | from a pool's name to its mapping, and to its place |
//! | [`current`] | the pool that calls go to |
//! | [`caller`] | the calling process in a pool |
//! | [`member`], [`claim`] | its process slot, and the liveness lock that goes with it |
//! | [`mapping`] | segments, mapped for the program |
//! | [`at_fork`], [`heirs`] | children, those that are counted and those that nobody sees |
//! | [`sharers`] | children in the same memory |
//! | [`lists`], [`lend`] | those with the same `SEM_UNDO` adjustments |
//! | [`kernel`] | the answers of this kernel to a pool's questions |
//! | [`revoked`], [`outcome`] | pools that are taken away while they are in use, and what calls return then |
//! | [`sizes`] | the sizes of sets and segments that this process was told |

pub mod at_fork;
pub mod by_name;
pub mod caller;
pub mod claim;
pub mod current;
pub mod heirs;
pub mod kernel;
pub mod lend;
pub mod lists;
pub mod mapping;
pub mod member;
pub mod open;
pub mod outcome;
pub mod revoked;
pub mod sharers;
pub mod sizes;
pub mod table;
