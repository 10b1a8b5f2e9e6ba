//! A machine's side: its first process, which sets it up and then serves commands; in a machine with a system
//! of its own, a service that does so ([`image`]). And the settings that the host gives it.
//!
//! | module | subject |
//! | --- | --- |
//! | [`settings`], [`seed`] | what the host tells a machine, on its kernel's command line or on a disk |
//! | [`hypervisor`] | what a machine asks of its hypervisor |
//! | `boot`, [`image`] | the first process, and the service |
//! | `commands`, `kept` | the commands that it starts, and the processes that it keeps running |
//! | `files`, `exported`, `skeleton`, `copies` | the host's files as the machine sees them |
//! | [`names`], `uplink`, [`dhcp`], [`ssh`] | names and addresses |
//! | `console`, `sys` | its output and system calls |

mod boot;
mod commands;
mod console;
mod copies;
pub mod dhcp;
mod exported;
mod files;
pub mod hypervisor;
pub mod image;
mod kept;
pub mod names;
pub mod seed;
pub mod settings;
mod skeleton;
pub mod ssh;
mod sys;
mod uplink;

pub use boot::main;
