//! The machines that run on this host: observing them, and carrying out the policy's decisions.
//!
//! | module | subject |
//! | --- | --- |
//! | `live` | the command: steps until it is interrupted, and what it says |
//! | `session` | this host while it is balanced, until all is as it was before |
//! | `machines` | the machines that run, and the threads of their vCPUs |
//! | `times` | times that threads and processors ran, and threads waited |
//! | `memory` | the nodes of a machine's memory, and moving it |
//! | `threads` | the processors that threads may run on |
//! | `ledger` | each change of this host, written down so that it can be undone |
//! | `kernel` | the kernel's own balancing, which would work against this |

mod kernel;
mod ledger;
pub mod live;
mod machines;
mod memory;
mod session;
mod threads;
mod times;
