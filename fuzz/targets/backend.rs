//! The back end's sockets: see `vshmem_fuzz::backend`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| vshmem_fuzz::backend::run(bytes));
