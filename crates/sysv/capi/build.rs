//! The linking of libvshmem.so, and a look at what its compiler can do.

use std::process::Command;

mod link;

/// The version of the binary interface; changes when a program built against an older one would break.
const SONAME: &str = "libvshmem.so.1";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=link.rs");
    link::as_preload(SONAME);
    println!("cargo:rustc-check-cfg=cfg(has_naked_functions)");
    if compiler_minor_version().is_some_and(|minor| minor >= 88) {
        println!("cargo:rustc-cfg=has_naked_functions");
    }
}

fn compiler_minor_version() -> Option<u32> {
    let compiler = std::env::var_os("RUSTC")?;
    let text = String::from_utf8(Command::new(compiler).arg("--version").output().ok()?.stdout).ok()?;
    text.strip_prefix("rustc 1.")?.split('.').next()?.parse().ok()
}
