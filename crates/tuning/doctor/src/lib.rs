//! Checks of what costs a machine its speed, and remedies: `vshmem doctor`.
//!
//! | module | subject |
//! | --- | --- |
//! | `system` | the files of /proc and /sys: of this kernel, or of a tree that was recorded elsewhere |
//! | `instruments` | measurements |
//! | `text`, `mounts` | words and numbers in them |
//! | `check`, `finding` | a check, and its finding |
//! | `look` | a check's look at the system, which keeps the evidence |
//! | `machines`, `matching`, `cpus` | the host's QEMU processes, and which of their threads share a core |
//! | `guest` | a machine as its own kernel sees it |
//! | `monitor`, `kvm` | QEMU's answers about a machine, and KVM's counts |
//! | `setting` | settings that can be changed, and put back |
//! | `checks` | a file for each subject, and the table of all |
//! | `examine` | all checks, root causes first |
//! | `saved`, `remedy` | the changes of `--fix`; `--fix` and `--undo` |
//! | `idle` | the idle daemon: its policy, its processes, and its gain |
//! | `page` | the page of documentation that the table makes |

mod check;
mod checks;
mod cpus;
mod examine;
mod finding;
mod guest;
mod idle;
mod instruments;
mod kvm;
mod look;
mod machines;
mod matching;
mod monitor;
mod mounts;
mod page;
mod remedy;
mod saved;
mod setting;
mod system;
#[cfg(test)]
mod tests;
mod text;

pub use check::Check;
pub use checks::{by_id, CHECKS};
pub use examine::{examine, examine_one};
pub use finding::{Change, Class, Evidence, Finding, Measurement, Outcome};
pub use idle::{
    prove, run as keep_from_idling, Contender, Missing, Processor, Proof, Source, Spread, Status,
};
pub use instruments::{Instruments, Live, Recorded};
pub use page::{explain, page};
pub use remedy::{fix, undo, Done};
pub use saved::Saved;
pub use setting::Setting;
pub use system::{Ask, Socket, System};
