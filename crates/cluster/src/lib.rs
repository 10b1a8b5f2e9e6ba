//! Machines that share a pool: start them, run commands in them, list them, stop them.
//!
//! The host's side needs no daemon: QEMU processes, their sockets and a record of each cluster in the user's
//! runtime directory are all there is. The guest's side is the same binary, which each machine gets as its first
//! process ([`guest_main`]).

mod cpio;
mod elf;
mod error;
mod guest;
mod host;
mod ids;
pub mod limits;
mod modules;
pub mod pools;
pub mod rates;
pub mod sample;
pub mod view;
mod visitor;
mod wire;

pub use error::{Error, Explain, Result};
pub use guest::main as guest_main;
pub use host::accel::Choice as AccelChoice;
pub use host::cluster::{down, find, list, Listed, MachineState};
pub use host::command::{environment, Identity, Job, Place};
pub use host::doorbell::directory as agent_directory;
pub use host::driver::Choice as DriverChoice;
pub use host::interrupt;
pub use host::library;
pub use host::run::{run, Options as RunOptions};
pub use host::state::{Machine, Record};
pub use host::up::{up, Options as UpOptions, Step};
