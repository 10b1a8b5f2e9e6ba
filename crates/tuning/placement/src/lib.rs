//! Placements of machines on a host: rules, requests and answers. `vshmem-place`, which knows the host's
//! topology, computes them; these are the types that it and `vshmem` exchange.
//!
//! | module | subject |
//! | --- | --- |
//! | [`rules`] | the rules by which machines are placed |
//! | [`plan`] | a placement: processors, memory nodes, and the topology that machines see |
//! | [`request`] | requests to `vshmem-place`, and its answers |
//! | [`binding`] | bindings of memory to nodes: whether the host permits them, and whether they hold |
//! | [`pages`] | kinds of pages that memory can be in |
//! | [`cpuset`] | sets of processors |

pub mod binding;
pub mod cpuset;
pub mod pages;
pub mod plan;
pub mod request;
pub mod rules;
