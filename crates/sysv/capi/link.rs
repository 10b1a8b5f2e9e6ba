//! The linking of a library that is preloaded into programs: nothing is needed beyond libc.

use std::process::Command;

/// Has the linker give the library this soname.
pub fn as_preload(soname: &str) {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,{soname}");
    // What it has registered, or given out, points into the library: it can't be unloaded.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // Its own calls must not be taken by another interposer.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
    link_unwinder_statically();
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
