//! A machine's side: its first process, which sets it up and then serves commands, or in a machine with a
//! system of its own a service that does so ([`image`]); and the settings that the host gives it.
//!
//! | module | subject |
//! | --- | --- |
//! | [`settings`], [`seed`] | a machine's settings, on its kernel's command line or on a disk |
//! | [`hypervisor`] | the hypervisor as its machines see it |
//! | `boot`, [`image`] | the first process, and the service |
//! | [`template`], `slots` | a machine that is not anybody yet, and devices that come to it |
//! | `commands`, `supervised` | the commands that it starts, and the processes that it keeps running |
//! | [`disk`], `files`, `exported`, `skeleton`, `copies` | the host's files as the machine sees them |
//! | [`names`], `uplink`, [`dhcp`], [`ssh`] | names and addresses |
//! | `console`, `sys` | its output and system calls |

mod boot;
mod commands;
mod console;
mod copies;
pub mod dhcp;
pub mod disk;
mod exported;
mod files;
pub mod hypervisor;
pub mod image;
pub mod names;
pub mod seed;
pub mod settings;
mod skeleton;
mod slots;
pub mod ssh;
mod supervised;
mod sys;
pub mod template;
mod uplink;

pub use boot::main;
