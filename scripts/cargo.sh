#!/bin/sh
# Prints the first cargo on this machine that is new enough for the workspace, or fails.
#
#   scripts/cargo.sh           print its path
#   scripts/cargo.sh --exec .. run it (with the compiler that belongs to it)
#
# Ubuntu installs newer compilers beside the old one, as cargo-1.85 and rustc-1.85; the plain
# names come first, then the numbered ones, newest first. CARGO in the environment wins.
set -eu

MINIMUM=85 # of Rust 1.x; the same as rust-version in Cargo.toml

minor_of() {
    "$1" --version 2>/dev/null </dev/null | sed -n 's/^[a-z]* 1\.\([0-9]*\).*/\1/p'
}

new_enough() {
    minor=$(minor_of "$1") || return 1
    [ -n "$minor" ] && [ "$minor" -ge "$MINIMUM" ]
}

candidates() {
    [ -z "${CARGO:-}" ] || echo "$CARGO"
    command -v cargo || true
    echo "${HOME:-/root}/.cargo/bin/cargo"
    for file in /usr/bin/cargo-1.* /usr/lib/rust-1.*/bin/cargo; do
        [ -x "$file" ] && echo "$file"
    done | sort -t. -k2 -rn
}

# The compiler that stands beside a numbered cargo: cargo-1.85 needs rustc-1.85.
use_matching_compiler() {
    case "$1" in
    */cargo-1.*)
        suffix=${1##*/cargo-}
        directory=${1%/*}
        export RUSTC="$directory/rustc-$suffix" RUSTDOC="$directory/rustdoc-$suffix"
        ;;
    /usr/lib/rust-1.*/bin/cargo)
        export PATH="${1%/cargo}:$PATH"
        ;;
    esac
}

find_cargo() {
    candidates | while read -r cargo; do
        if [ -x "$cargo" ] && new_enough "$cargo"; then
            echo "$cargo"
            break
        fi
    done
}

cargo=$(find_cargo)
if [ -z "$cargo" ]; then
    echo "No cargo of Rust 1.$MINIMUM or newer was found. Run: scripts/prepare.sh --install build" >&2
    exit 1
fi
if [ "${1:-}" = --exec ]; then
    shift
    use_matching_compiler "$cargo"
    exec "$cargo" "$@"
fi
echo "$cargo"
