//! Many machines that share a pool: describing, starting, changing, listing and stopping them.
//!
//! The host's side needs no daemon. It consists of the VMMs' processes, their sockets, and a record of each
//! cluster in the user's runtime directory ([`vshmem_hypervisor::state`]).
//!
//! | module | subject |
//! | --- | --- |
//! | [`change`] | changing a cluster that runs |
//! | [`host`] | starting, listing and ending clusters |
//! | [`description`] | the description of a cluster |
//! | [`images`] | images that machines boot by a name or an address |

pub mod change;
pub mod description;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
pub mod host;
pub mod images;
