//! Pools seen from outside: listing, sampling and checking them, and removing IPC objects.
//!
//! | module | subject |
//! | --- | --- |
//! | [`pools`], [`limits`] | pools of this kernel, making and removing them, and their limits |
//! | [`host_pool`] | a pool of this host that can be given to machines |
//! | `view`, [`client`] | an open pool: looked at, or joined |
//! | [`contents`], [`check`] | a pool's contents, and its integrity |
//! | [`participants`], [`processes`], `ids` | its members and waiters, the processes and users that it names |
//! | [`sample`], [`rates`] | a pool at one moment, and its traffic between two |

pub mod check;
pub mod client;
pub mod contents;
pub mod host_pool;
mod ids;
pub mod limits;
pub mod participants;
pub mod pools;
pub mod processes;
pub mod rates;
pub mod sample;
mod view;

pub use host_pool::HostPool;
