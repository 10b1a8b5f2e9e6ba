//! PCI functions of a host that machines have for themselves: which can be given, which are given and to
//! whom, and giving them back. It knows no cluster and starts no machine.
//!
//! | module | subject |
//! | --- | --- |
//! | [`tree`] | the kernel's files, or a copy of them |
//! | [`address`], [`kind`], [`function`] | a function, as sysfs shows it |
//! | [`want`] | wishes for functions |
//! | [`survey`] | all functions of a host |
//! | [`usage`], [`obstacle`] | obstacles to giving one to a machine |
//! | [`direct`] | transfers between GPUs and other devices (GPUDirect) |
//! | [`ledger`] | the holders of functions, written down before anything is changed |
//! | [`choose`] | the choice of functions for a machine |
//! | [`driver`], [`virtuals`] | changing a function's driver, making virtual functions |
//! | [`hold`] | claiming, binding and giving back, whole or not at all |

pub mod address;
pub mod choose;
pub mod direct;
pub mod driver;
pub mod function;
pub mod hold;
pub mod kind;
pub mod ledger;
pub mod obstacle;
pub mod survey;
#[cfg(test)]
mod tests;
pub mod tree;
pub mod usage;
pub mod virtuals;
pub mod want;
