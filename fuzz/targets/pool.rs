//! The memory of a pool, and its calls: see `vshmem_fuzz::pool`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| vshmem_fuzz::pool::run(bytes));
