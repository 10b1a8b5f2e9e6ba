//! A host in simulated time, on which the policy decides as on a real one.
//!
//! | module | subject |
//! | --- | --- |
//! | `model` | what distance, caches, siblings and memory that many use cost |
//! | `program` | what machines do: sections with as many active vCPUs as there is parallelism |
//! | `world` | the host, step by step, and what is measured |
//! | `kernel` | which processor the host's scheduler gives each vCPU, within what it may have |
//! | `rule` | who decides where vCPUs may run: nobody, the policy, or `esxi`, a rule like ESXi's |
//! | `paper` | the model fitted on some rows of a published table, and what it says of the others |
//! | `many` | many machines on a large host |

mod esxi;
mod kernel;
pub mod many;
pub mod model;
pub mod paper;
pub mod program;
pub mod rule;
pub mod world;
