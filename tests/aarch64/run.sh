#!/bin/sh
# The suite "aarch64": the workspace (but vshmem-place and vshmem-balance) is cross-compiled, and unit tests
# of the library's rooms and the conformance tests run in QEMU's user mode, which translates instructions and
# hands system calls to this kernel. Exit status 77: Rust's library for aarch64 is not there.
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
target=aarch64-unknown-linux-gnu
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$root/target}"

if ! scripts/prepare.sh --has-target "$target"; then
    echo "aarch64: this Rust has no library for $target: with rustup, \`rustup target add $target\`."
    echo "Debian's is libstd-rust-dev:arm64 (Debian 12: libstd-rust-web-dev:arm64), after" \
        "\`dpkg --add-architecture arm64\`."
    [ "${CI:-}" != true ] || exit 1
    exit 77
fi

runner="qemu-aarch64 -L /usr/aarch64-linux-gnu"
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
    CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="$runner"
# Nobody debugs these, and they build in half the time.
export CARGO_PROFILE_DEV_DEBUG=0 CARGO_INCREMENTAL=0
cargo="$root/scripts/cargo.sh --exec"
# These need that architecture's hwloc, which is not installed beside this one's.
$cargo build --workspace --exclude vshmem-place --exclude vshmem-balance --locked --target "$target"

# What is left out, and why. To these calls of madvise(2) QEMU says yes and does nothing: DONTFORK,
# POPULATE_READ, POPULATE_WRITE, REMOVE, and before QEMU 8.0 WIPEONFORK. So memory is not given back, nor
# emptied, nor asked for in advance.
left_out() {
    cat <<'LIST'
model::                                               the same for every processor, and slow
tests::scribble::                                     the same for every processor, and slow
tests::many::                                         the same for every processor, and slow
tests::budget::                                       measures time
tests::full::who_dies_while_making_room               the same for every processor, and slow
tests::death::a_lock_is_waited_for_while_its_owner_is measures time
msg::retired::tests::a_queue_leaves_only_so_many      measures time
spin::tests::spinning_is_given_up                     measures time
page::tests::a_raw_fork_finds_the_page_empty          WIPEONFORK
a_hole_or_a_read_only_page_is_found                   POPULATE_READ, POPULATE_WRITE
a_full_file_system_is_an_error_and_no_signal          POPULATE_WRITE
every_page_of_a_pool_can_be_given_back                POPULATE_WRITE
named_pools_are_listed_until_removed                  POPULATE_WRITE
a_process_is_over_with_its_last_thread                QEMU's own threads live on in a child
a_length_beyond_the_limit_is_set                      QEMU makes no child that ends without a signal
LIST
}
left_out | while read -r name _; do
    last=${name##*::}
    [ -z "$last" ] || grep -rqE "(fn|mod) $last" crates/sysv || {
        echo "run.sh: there is no test $name to be left out" >&2
        exit 2
    }
done
skips=$(left_out | awk '{ printf " --skip %s", $1 }')
# Without the contract of transports: most of it gives memory back, or forks (DONTFORK).
# shellcheck disable=SC2086 # lists of words
$cargo test --locked --target "$target" --lib --test local \
    -p vshmem-pool -p vshmem-wait -p vshmem-transport -p vshmem-ipc -p vshmem-capi -p vshmem-ucx -- $skips

library=$CARGO_TARGET_DIR/$target/debug/libvshmem.so
export CC=aarch64-linux-gnu-gcc

# Structures as the system's headers have them, calls, and what is in assembly.
programs=$CARGO_TARGET_DIR/$target/tests-capi
opened=$(printf "$programs/opened/%s.so " plugin plugin-too origin next sub/found)
plain="abi calls calls-numbered syscall early idle noheap setuid"
# shellcheck disable=SC2046,SC2086
make -s -C tests/capi CC="$CC" LIB="$library" OUT="$programs" $(printf "$programs/%s " $plain dlfcn) $opened
pools=$(mktemp -d /dev/shm/vshmem-aarch64.XXXXXX)
trap 'rm -rf "$pools"' EXIT
trap 'exit 1' HUP INT TERM
chmod 755 "$pools"
try() { # try PRELOADED PROGRAM ARGUMENT...
    preloaded=$1 program=$2
    shift 2
    # shellcheck disable=SC2086
    env "VSHMEM_POOL=$pools/pool" VSHMEM_POOL_SIZE=64M timeout -k 5 60 $runner -E "LD_PRELOAD=$preloaded" \
        "$programs/$program" "$@"
    echo "ok $program${1:+ $1}"
    rm -f "$pools/pool"
}
for program in $plain; do
    try "$library" "$program"
done
try "$library" dlfcn taken "$programs/opened"
try "$programs/opened/next.so $library" dlfcn before "$programs/opened"
try "$library $programs/opened/next.so" dlfcn after "$programs/opened"

# Without death: QEMU's own thread outlives those of the program. A segment that had an owner before is not
# emptied (REMOVE); nothing can be mapped at zero; 2000 processes are many for QEMU; it makes vfork a fork,
# and the program that is executed there is the host's.
TESTS="sem msg shm process handlers users stopped stress" RUNNER=$runner \
    LEFT_OUT="shm/a_new_segment_is_zero_also_where_an_old_one_was shm/an_address_in_the_first_page_is_zero \
process/many_short_lives process/survives_vfork sem/a_thread_leaves_the_list_to_the_others" \
    tests/conformance/run.sh "$library"
