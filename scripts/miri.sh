#!/bin/sh
# miri.sh: unit tests of pool and ipc under Miri, which runs them instruction by instruction and tells of what
# the language does not define: an access outside of what a pointer was made for, a wrong alignment, two
# threads that race for bytes.
#
# Those are run that take a few seconds each there: it is a thousand times slower. Of memory's weak order it
# knows nothing here, since it can't follow words of which others store halves; the suite models has that.
#
# Needs a nightly Rust of rustup's with Miri, which is added if it can be had. Else the suite is skipped.
set -eu

cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-$PWD/target}

has_miri() {
    cargo +nightly miri --version >/dev/null 2>&1
}

if ! has_miri; then
    rustup component add --toolchain nightly miri rust-src >/dev/null 2>&1 || true
fi
has_miri || {
    echo "There is no Miri: rustup toolchain install nightly --component miri,rust-src"
    exit 77
}

miri() { # miri CRATE TEST...
    crate=$1
    shift
    # Memory lives as long as its test's process.
    flags="-Zmiri-strict-provenance -Zmiri-disable-isolation -Zmiri-ignore-leaks"
    CARGO_TARGET_DIR="$target/miri" MIRIFLAGS="$flags -Zmiri-disable-weak-memory-emulation" \
        cargo +nightly miri test --locked --quiet --lib -p "$crate" -- "$@"
}

miri vshmem-pool budget::tests pair::tests memory_requests::tests::answers memory_requests::tests::there \
    memory_requests::tests::what tests::doorbell tests::format tests::mem:: tests::member heap::impossible \
    --skip no_word_of_the_geometry --skip ids_with_more_bits
# Not those in which somebody sleeps on a status: that is a half of a word which is stored whole, and the
# language defines no race of different sizes, though processors do.
miri vshmem-ipc msg::end::tests msg::mark::tests msg::ring::tests msg::name::tests sem::fast::tests \
    all_or_not_at_all what_two_killed_processes_took setting_a_value permissions_say_how \
    permissions_are_looked_at types_choose long_texts_are_cut an_id_of_another_entry pages_whose_owner \
    a_removed_segment a_machines_root attachments_are_counted --skip believes_no_offset
