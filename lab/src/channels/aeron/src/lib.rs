//! Nothing: this package is for its `Cargo.lock`.
