//! The one command, `vshmem`.
fn main() {}
