//! Texts and messages: see `vshmem_fuzz::texts`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| vshmem_fuzz::texts::run(bytes));
