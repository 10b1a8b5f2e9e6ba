#!/bin/sh
# msrv.sh: checks all that the oldest Rust which is supported compiles, and has it build the library, which then must pass the tests in C and the
# conformance suite: how assembly and Rust go together is each compiler's own. Rust comes by rustup, if that is there; without it,
# or where the present Rust is that one, nothing is left to do.
#
# Exit status 0 also where it was skipped, and said so.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
oldest=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$root/target}/msrv"

if scripts/cargo.sh --exec --version | grep -q "^cargo $oldest\."; then
    echo "skipped: the compiler is Rust $oldest, so every suite was built by it"
    exit 0
fi
if ! command -v rustup >/dev/null; then
    echo "skipped: Rust $oldest comes by rustup, which is not there"
    exit 0
fi
if ! rustup toolchain install "$oldest" --profile minimal --no-self-update; then
    echo "skipped: rustup could not get Rust $oldest"
    exit 0
fi
rustup run "$oldest" cargo check --workspace --all-targets --locked
rustup run "$oldest" cargo build --release --locked -p vshmem-capi
library=$CARGO_TARGET_DIR/release/libvshmem.so
make -C tests/capi check "LIB=$library" "OUT=$CARGO_TARGET_DIR/tests-capi"
tests/conformance/run.sh "$library"
