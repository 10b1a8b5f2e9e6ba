//! Where a host's machines run: on which cores, with memory from which nodes, and what they are shown of it.
//! Nothing here starts or moves anything.
//!
//! | module | subject |
//! | --- | --- |
//! | `topology`, `hwloc` | a host's cores, caches and memory nodes, and how they are read |
//! | `place` | the placement: a pure function of these and of what is asked for |
//! | `guest` | what a machine is shown of it |
//! | `advise` | how many machines of what size |
//! | `draw` | the same as a picture, in text and as SVG |
//!
//! Requests and answers are the types of `vshmem_placement`.

pub mod advise;
pub mod draw;
mod guest;
pub mod hwloc;
mod place;
pub mod topology;

pub use place::{place, PlaceError};
