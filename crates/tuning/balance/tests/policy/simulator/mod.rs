//! A host in simulated time, on which the policy decides as on a real one.
//!
//! | module | subject |
//! | --- | --- |
//! | `model` | what distance, caches, siblings and memory that many use cost |
//! | `program` | what machines do: sections with as many active vCPUs as there is parallelism |
//! | `world` | the host, step by step, and what is measured |
//! | `kernel` | which processor the host's scheduler gives each vCPU, within what it may have |
//! | `rule` | what decides where vCPUs may run: the kernel alone, the policy, or `esxi`, a rule like ESXi's |

mod esxi;
mod kernel;
pub mod model;
pub mod program;
pub mod rule;
pub mod world;
