//! Changes of a cluster that runs: what differs between its options and new ones, and making it so.
//!
//! | module | subject |
//! | --- | --- |
//! | [`plan`] | what differs, and what each difference takes |
//! | [`apply`] | making changes, one after the other |
//! | [`steps`] | a change each, under the cluster's lock |
//! | [`size`] | the options of a cluster with more machines, or fewer |

pub mod apply;
pub mod plan;
pub mod size;
mod steps;
