//! What runs inside a machine: its first process, which sets it up and then serves commands; in a machine with a
//! system of its own, a service that does the same (`image`). The agent, which runs the commands, serves those
//! of this kernel as well.

pub mod agent;
mod boot;
pub mod command;
mod console;
mod exported;
mod files;
mod front_end;
pub mod image;
mod network;
pub mod scratch;
pub mod session;
mod skeleton;
mod stream;
mod sys;
mod terminal;

pub use boot::main;
