//! The machines that run on this host: what is seen of them, and carrying out what the policy decides.
//!
//! | module | subject |
//! | --- | --- |
//! | `live` | the command: steps until it is interrupted, and what it says |
//! | `session` | from the first look at a host until all is as it was before |
//! | `machines` | which machines run, and which threads their vCPUs are |
//! | `times` | who ran where, and who waited |
//! | `memory` | on which nodes a machine's memory is, and moving it |
//! | `threads` | the processors that threads may run on |
//! | `ledger` | what was changed, for whoever has to undo it |
//! | `kernel` | the kernel's own balancing, which would work against this |

mod kernel;
mod ledger;
pub mod live;
mod machines;
mod memory;
mod session;
mod threads;
mod times;
