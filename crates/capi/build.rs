//! How libvshmem.so is linked: its soname, and nothing needed beyond libc.

use std::process::Command;

/// The version of the binary interface; changes when a program built against an older one would break.
const SONAME: &str = "libvshmem.so.1";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,{SONAME}");
    // Exit handlers and fork handlers point into the library: it can't be unloaded.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // Its own calls of `syscall` must not be taken by another interposer.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
    link_unwinder_statically();
    println!("cargo:rustc-check-cfg=cfg(has_naked_functions)");
    if compiler_minor_version().is_some_and(|minor| minor >= 88) {
        println!("cargo:rustc-cfg=has_naked_functions");
    }
}

/// libgcc_s would be one more library in every process; its unwinder also comes as an archive beside the
/// compiler. Where the archive can't be found, the shared one is used.
fn link_unwinder_statically() {
    // The one that links for another processor knows where that one's archive is.
    let compiler =
        std::env::var("CC").or_else(|_| std::env::var("RUSTC_LINKER")).unwrap_or_else(|_| "cc".into());
    let found = Command::new(compiler).arg("-print-file-name=libgcc_eh.a").output();
    let Some(archive) = found.ok().and_then(|o| String::from_utf8(o.stdout).ok()) else {
        return;
    };
    let archive = std::path::Path::new(archive.trim());
    let Some(folder) = archive.parent().filter(|_| archive.is_absolute()) else {
        return;
    };
    println!("cargo:rustc-link-search=native={}", folder.display());
    println!("cargo:rustc-link-lib=static:+whole-archive,-bundle=gcc_eh");
}

fn compiler_minor_version() -> Option<u32> {
    let compiler = std::env::var_os("RUSTC")?;
    let text = String::from_utf8(Command::new(compiler).arg("--version").output().ok()?.stdout).ok()?;
    text.strip_prefix("rustc 1.")?.split('.').next()?.parse().ok()
}
