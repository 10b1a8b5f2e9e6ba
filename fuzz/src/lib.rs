//! What others may write into a pool, say on a socket or put into a file: each target is a function from
//! bytes, which a fuzzer chooses, to nothing. It panics, touches what is not its own or does not come back
//! where the library has a fault.
//!
//! `scripts/fuzz.sh` runs the fuzzer. `tests/replay.rs` gives every function what is kept in `corpus` and
//! `regressions`, by the product's compiler and without a fuzzer.
#![deny(unsafe_op_in_unsafe_fn)]

pub mod backend;
pub mod input;
pub mod pool;
pub mod root;
pub mod texts;

/// A target.
pub type Target = fn(&[u8]);

/// All targets, by name.
pub const TARGETS: &[(&str, Target)] =
    &[("backend", backend::run), ("pool", pool::run), ("root", root::run), ("texts", texts::run)];
