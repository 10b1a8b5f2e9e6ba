//! Finds libvshmem: where `VSHMEM_LIB_DIR` says, else where pkg-config says, else where the linker looks.

use std::env;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=VSHMEM_LIB_DIR");
    if let Some(directory) = env::var_os("VSHMEM_LIB_DIR") {
        println!("cargo:rustc-link-search=native={}", std::path::Path::new(&directory).display());
    } else if pkg_config::Config::new().atleast_version("0.1").probe("vshmem").is_ok() {
        return; // it has said what to link
    }
    println!("cargo:rustc-link-lib=dylib=vshmem");
}
