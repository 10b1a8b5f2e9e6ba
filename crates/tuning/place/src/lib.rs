//! Placements of a host's machines: their cores, the nodes of their memory, and the topology that they see.
//! Nothing here starts or moves anything.
//!
//! | module | subject |
//! | --- | --- |
//! | `topology`, `hwloc` | a host's cores, caches and memory nodes, and how they are read |
//! | `place` | the placement: a pure function of these and of what is asked for |
//! | `guest` | the topology that a machine sees |
//! | `advise` | the number and size of machines for a parallel program |
//! | `draw` | pictures of a placement, as text and as SVG |
//!
//! Requests and answers are the types of `vshmem_placement`.

pub mod advise;
pub mod draw;
mod guest;
pub mod hwloc;
mod place;
pub mod topology;

pub use place::{place, PlaceError};
