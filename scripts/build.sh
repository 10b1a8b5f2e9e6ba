#!/bin/sh
# Release builds, into target/release.
#
#   scripts/build.sh            what is installed: the libraries, and the commands
#   scripts/build.sh demo       the library and the command alone
#   scripts/build.sh helpers    programs of tests that run in machines
#   scripts/build.sh tests      those, and what other suites would compile while they take time
#
# Libraries are optimized as a whole (thin LTO, as Cargo.toml says), for they are part of other programs'
# calls. Commands are not, and have no tables of lines, which halves the time that all of it takes.
set -eu

cd "$(dirname "$0")/.."
libraries() { scripts/cargo.sh --exec build --release --locked "$@"; }
commands() { CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_DEBUG=none libraries "$@"; }

case ${1:-} in
demo)
    libraries -p vshmem-capi
    commands -p vshmem-cli
    ;;
helpers)
    commands -p vshmem-wait --features soak --bin doorbell-soak
    commands -p vshmem-transport --features contract --bin transport-contract
    ;;
tests)
    scripts/build.sh helpers
    target=${CARGO_TARGET_DIR:-$PWD/target}
    libraries --manifest-path tests/crash/steps/Cargo.toml --target-dir "$target"
    libraries --manifest-path tests/differential/Cargo.toml --target-dir "$target" --all-targets
    ;;
'')
    libraries -p vshmem-capi -p vshmem-ucx
    commands -p vshmem-cli -p vshmem-place -p vshmem-balance
    ;;
*)
    sed -n '2,10s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
