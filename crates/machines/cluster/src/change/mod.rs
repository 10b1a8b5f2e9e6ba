//! Changes of a cluster that runs: the differences between its options and new ones, and how they are made.
//!
//! | module | subject |
//! | --- | --- |
//! | [`plan`] | the differences, and the effort of each |
//! | [`apply`] | making changes, one after the other |
//! | [`steps`] | a change each, under the cluster's lock |
//! | [`size`] | the options of a cluster with more machines, or fewer |

pub mod apply;
pub mod plan;
pub mod size;
mod steps;
