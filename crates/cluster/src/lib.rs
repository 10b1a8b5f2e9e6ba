//! Machines that share a pool: start them, run commands in them, list them, stop them.
//!
//! The host's side needs no daemon: QEMU processes, their sockets and a record of each cluster in the user's
//! runtime directory are all there is. The guest's side is the same binary, which each machine gets as its first
//! process ([`guest_main`]).

pub mod check;
mod cpio;
mod descriptors;
mod elf;
mod error;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod guest;
mod host;
mod ids;
mod launcher;
pub mod limits;
mod memory;
mod modules;
pub mod pools;
pub mod rates;
pub mod sample;
mod signals;
mod user;
pub mod view;
mod visitor;
pub mod who;
mod wire;

pub use error::{Error, Explain, Result, OUR_FAILURE};
pub use guest::main as guest_main;
pub use host::cluster::{down, find, list, Listed, MachineState};
pub use host::command::{environment, Identity, Job, Place};
pub use host::driver::Choice as DriverChoice;
pub use host::health::{of as health, Health};
pub use host::interrupt;
pub use host::library;
pub use host::names;
pub use host::ports::Ports;
pub use host::restart::restart;
pub use host::run::{run, Options as RunOptions};
pub use host::source::Source;
pub use host::state::{Granted, Machine, Record};
pub use host::up::{up, Options as UpOptions, Step};
pub use host::using::{check_unused, settle};
pub use launcher::qemu::adopted::{Adopted, Reach};
pub use launcher::qemu::attach::{attach, detach, Done as AttachDone, Wish as AttachWish};
pub use launcher::qemu::doorbell::directory as agent_directory;
pub use launcher::qemu::grant::{grant, pools as granted_pools, revoke, Done as GrantDone};
pub use launcher::qemu::health::{attached, Attached};
pub use launcher::qemu::libvirt::Domain;
pub use launcher::qemu::permanent::describe as describe_permanent;
pub use launcher::qemu::sandbox::{main as sandbox_main, NAME as SANDBOX};
pub use launcher::qemu::target::Target;
pub use launcher::{table as launchers, Launcher, Running};
pub use vshmem_agent::{plain, printable};
