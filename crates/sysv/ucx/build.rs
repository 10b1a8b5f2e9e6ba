//! The linking of libvshmem-ucx.so.

#[path = "../capi/link.rs"]
mod link;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    link::as_preload("libvshmem-ucx.so.1");
}
