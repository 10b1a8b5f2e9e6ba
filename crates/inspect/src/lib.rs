//! A pool seen from outside: listing, watching, checking and removing what is in it.
//!
//! | module | subject |
//! | --- | --- |
//! | [`pools`], [`limits`] | the pools of this kernel, making and removing them, and their limits |
//! | [`host_pool`] | a pool of this host that can be given to machines |
//! | `view`, [`client`] | a pool that is open, to look at or joined |
//! | [`contents`], [`check`] | what is in it, and whether it is whole |
//! | [`participants`], [`processes`], `ids` | its members and waiters, the processes and users that it names |
//! | [`sample`], [`rates`] | a pool at one moment, and what happens between two |

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
