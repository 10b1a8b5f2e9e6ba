//! What runs inside a machine: its first process, which sets it up and then serves commands. The agent, which
//! runs them, serves those of this kernel as well.

pub mod agent;
mod boot;
pub mod command;
mod console;
mod front_end;
mod network;
pub mod scratch;
pub mod session;
mod stream;
mod sys;
mod terminal;

pub use boot::main;
