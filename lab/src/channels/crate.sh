#!/bin/sh
# Makes the library of a rival that crates.io has, as the Cargo.lock of its folder pins it; or prints
# "missing: WHY" and fails.
#
#   crate.sh iceoryx OUT   OUT/crates/release/libchannel_iceoryx.a, by cargo
#   crate.sh aeron OUT     OUT/aeron/libaeron.a, of the C sources in the crate rusteron-media-driver, and a
#                          link to them, OUT/aeron/sources. Aeron's CMakeLists.txt asks for a CMake that few
#                          systems have; what is defined here is what it defines, for a release on Linux.
#   crate.sh aeron OUT project   OUT/project: the sources of Aeron's client, for the suite "vsuite"
set -eu

rival=$1
out=$2
here=$(cd "$(dirname "$0")" && pwd)
manifest=$here/$rival/Cargo.toml

missing() {
    echo "missing: $*" >&2
    exit 1
}

# In a checkout, the Rust that Vshmem is built with.
find_cargo() {
    "$here/../../../scripts/cargo.sh" 2>/dev/null || command -v cargo ||
        missing "cargo, which fetches $rival, is not installed"
}

quietly() { # quietly WORD...: into the log
    "$@" >"$log" 2>&1
}

iceoryx() {
    quietly "$cargo" build --locked --release --manifest-path "$manifest" --target-dir "$out/crates" && return
    ! grep -q 'requires rustc' "$log" || missing "the Rust that iceoryx2 needs is not installed"
    missing "iceoryx2 can't be built: $(grep -m1 '^error' "$log")"
}

compile_aeron() { # compile_aeron SOURCES
    version=$(cat "$1/version.txt")
    major=${version%%.*} minor=${version#*.} patch=${version##*.}
    minor=${minor%%.*}
    set -- "$1/aeron-client/src/main/c" "$1/aeron-driver/src/main/c"
    find "$1" "$2" -name '*.c' ! -name aeronmd.c -print0 | xargs -0 -P "$(nproc)" -n 8 "${CC:-cc}" -c \
        -std=c11 -O3 -DNDEBUG -DDISABLE_BOUNDS_CHECKS -D_DEFAULT_SOURCE -D_FILE_OFFSET_BITS=64 \
        -DAERON_DRIVER -DHAVE_FALLOCATE -DHAVE_POSIX_FALLOCATE -DHAVE_POSIX_MEMALIGN -DHAVE_DEV_URANDOM \
        -DHAVE_POLL -DHAVE_EPOLL -DHAVE_STRUCT_MMSGHDR -DHAVE_RECVMMSG -DHAVE_SENDMMSG \
        -fno-omit-frame-pointer \
        "-DAERON_VERSION_TXT=\"$version\"" "-DAERON_VERSION_MAJOR=$major" "-DAERON_VERSION_MINOR=$minor" \
        "-DAERON_VERSION_PATCH=$patch" '-DAERON_VERSION_GITSHA=""' "-I$1" "-I$2"
}

sources_of_aeron() {
    crate=$("$cargo" metadata --locked --offline --format-version 1 --manifest-path "$manifest" |
        grep -o '"[^"]*/rusteron-media-driver-[^"/]*/Cargo.toml"' | tr -d '"')
    echo "${crate%/*}/aeron"
}

project() {
    rm -rf "$out/project"
    cp -r "$(sources_of_aeron)/aeron-client/src/main/c" "$out/project"
}

aeron() {
    sources=$(sources_of_aeron)
    rm -rf "$out/aeron"
    mkdir "$out/aeron"
    (cd "$out/aeron" && quietly compile_aeron "$sources" && ar rcs libaeron.a ./*.o && rm ./*.o) ||
        missing "Aeron can't be compiled: $(grep -m1 'error' "$log")"
    ln -s "$sources" "$out/aeron/sources"
}

mkdir -p "$out"
out=$(cd "$out" && pwd)
log=$out/$rival.log
cargo=$(find_cargo)
quietly "$cargo" fetch --locked --manifest-path "$manifest" ||
    missing "crates.io can't be reached, and $rival is not installed"
"${3:-$rival}"
