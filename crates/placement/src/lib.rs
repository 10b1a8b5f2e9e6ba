//! Where machines run on this host: what can be asked for, and what was found. `vshmem-place` computes it,
//! which knows the host's topology; here is what both programs say to each other.
//!
//! | module | subject |
//! | --- | --- |
//! | [`rules`] | how machines are to be placed |
//! | [`plan`] | where they run, and what they are shown of it |
//! | [`request`] | asking `vshmem-place` |
//! | [`binding`] | memory that comes from certain nodes: whether it may, and whether it does |
//! | [`pages`] | the pages that memory is in |
//! | [`cpuset`] | sets of processors |

pub mod binding;
pub mod cpuset;
pub mod pages;
pub mod plan;
pub mod request;
pub mod rules;
