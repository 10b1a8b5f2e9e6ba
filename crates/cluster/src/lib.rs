//! Machines that share a pool: starting them, running commands in them, listing and stopping them.
//!
//! The host's side needs no daemon. It consists of the hypervisor's processes, their sockets, and a record of
//! each cluster in the user's runtime directory. The guest's side is the same binary, which runs as the first
//! process of each machine ([`guest_main`]).
//!
//! From the top down; only a record also knows what launchers have started ([`Running`]):
//!
//! | module | subject |
//! | --- | --- |
//! | `description` | what a file or options say of a cluster |
//! | `change` | changing a cluster that runs |
//! | `host`, `commands` | what `vshmem` does with clusters, and with commands in machines |
//! | `guest` | a machine's first process |
//! | `remote_shell` | an MPI launcher's remote shell, and its relay |
//! | `launcher` | what starts machines, a folder for each |
//! | `boot` | what machines boot |
//! | `state` | what is written down of clusters |
//! | `wire` | the protocol between a host and a machine's agent |

mod boot;
mod change;
mod commands;
pub mod description;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod guest;
mod host;
mod launcher;
mod modules;
mod remote_shell;
mod state;
mod wire;

pub use change::apply::{apply, changeable, changes, Permitted};
pub use change::plan::{described, Change};
pub use change::size::{grown, shrunk};
pub use commands::job::Job;
pub use commands::launch::{launch, Host, Launch};
pub use commands::local::{main as commands_main, serve_stdio as serve_commands, NAME as COMMANDS};
pub use commands::location::{Location, MachineLocation, Reached};
pub use commands::run::{run, Options as RunOptions};
pub use guest::dhcp::lease as lease_address;
pub use guest::image::{main as machine_main, NAME as MACHINE};
pub use guest::main as guest_main;
pub use guest::names::write_hosts;
pub use guest::ssh::{connect as connect_here, host_keys as host_keys_here};
pub use host::cluster::{core_threads, down, health, list, Listed};
pub use host::devices::{held as held_devices, near as near_devices};
pub use host::names;
pub use host::pages::left_by_others as pages_left_by_others;
pub use host::placing::taken as taken_by_others;
pub use host::repair::{repair, watch as watch_cluster};
pub use host::restart::restart;
pub use host::up::{up, How};
pub use host::users::{check_unused, declare_dead_machines};
pub use launcher::affinity;
pub use launcher::libvirt::virsh::Domain;
pub use launcher::options::{MachineOptions, Options as UpOptions, PoolOptions, Progress};
pub use launcher::qemu::attach::{attach, detach, AttachOptions, AttachResult};
pub use launcher::qemu::attached::{Attached, Monitor};
pub use launcher::qemu::confined::main as sandbox_main;
pub use launcher::qemu::doorbell::directory as agent_directory;
pub use launcher::qemu::grant::{grant, pools as granted_pools, revoke, GrantResult};
pub use launcher::qemu::health::{attached_machines, AttachedStatus};
pub use launcher::qemu::persistent::describe as describe_persistent;
pub use launcher::qemu::qmp::Qmp;
pub use launcher::qemu::sandbox::NAME as SANDBOX;
pub use launcher::qemu::target::Target;
pub use launcher::running::Running;
pub use launcher::starting::uplink_of;
pub use launcher::table as launchers;
pub use launcher::table::location;
pub use launcher::traits::Launcher;
pub use remote_shell::{call as call_relay, relay};
pub use state::machine::{all_of, find, Health, MachineState};
pub use state::ports::Ports;
pub use state::record::{Granted, Machine, MadePool, Record};
pub use state::uplink::{Addresses, Card};
