//! The agent, which runs commands for the hosts at the other ends of its channels. It runs in a machine,
//! where a command prefix reaches, or on this kernel.
//!
//! | module | subject |
//! | --- | --- |
//! | [`serve`], [`session`], [`stream`] | an agent, its session with a host, the input and output of a command |
//! | [`command`], [`terminal`], [`scratch`] | a command, its terminal and its directory for temporary files |

pub mod command;
pub mod scratch;
pub mod serve;
pub mod session;
mod stream;
mod terminal;
