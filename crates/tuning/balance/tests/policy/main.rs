//! The policy's tests, on hosts in simulated time and on observations of any kind.
//!
//! | module | subject |
//! | --- | --- |
//! | `promises` | what the policy promises |
//! | `comparison` | the policy beside the kernel alone and a rule like ESXi's, with many machines on a large host |
//! | `paper` | a model fitted on some rows of a published table, and what it says of the others |
//! | `simulator` | the simulated host |

mod comparison;
mod paper;
mod promises;
mod simulator;
