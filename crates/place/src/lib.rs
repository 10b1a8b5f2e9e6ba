//! Where a host's machines run: on which cores, with memory from which nodes, and what they are shown of it.
//! Nothing here starts or moves anything.
//!
//! | module | subject |
//! | --- | --- |
//! | `topology`, `hwloc` | a host's cores, caches and memory nodes, and how they are read |
//! | `machine` | what is to be placed, and by which policy |
//! | `place` | the placement: a pure function of these |
//! | `plan`, `guest` | what it is, and what a machine is shown of it |
//! | `advise` | how many machines of what size |
//! | `draw` | the same as a picture, in text and as SVG |
//! | `cpuset` | sets of processors |

pub mod advise;
pub mod cpuset;
pub mod draw;
mod guest;
pub mod hwloc;
pub mod machine;
mod place;
pub mod plan;
pub mod topology;

pub use place::{place, PlaceError};
