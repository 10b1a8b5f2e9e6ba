//! What runs inside a machine: its first process, which sets it up and then serves commands; in a machine
//! with a system of its own, a service that does the same (`image`). The agent, which runs the commands,
//! serves those of this kernel as well.

pub mod agent;
mod boot;
pub mod command;
mod commands;
mod console;
pub mod copies;
pub mod dhcp;
mod exported;
mod files;
pub mod hypervisor;
pub mod image;
mod kept;
pub mod names;
pub mod scratch;
pub mod seed;
pub mod session;
mod skeleton;
pub mod ssh;
mod stream;
mod sys;
mod terminal;
mod uplink;

pub use boot::main;
