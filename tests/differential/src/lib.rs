//! Performs the same System V calls on the kernel and on Vshmem, in step, and compares.
//!
//! A [`script::Script`] is a list of steps: calls of several worker processes, signals, deaths, forks.
//! [`compare::run`] performs it on two [`side::Side`]s and says where they first differ. [`generate`]
//! makes random scripts; [`search`] looks for one on which the sides differ, and shrinks it.

pub mod compare;
pub mod generate;
pub mod names;
mod peer;
pub mod script;
pub mod search;
pub mod setup;
pub mod side;
mod translate;
