//! A machine's root: see `vshmem_fuzz::root`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| vshmem_fuzz::root::run(bytes));
