#!/bin/sh
# The tests on a Debian 13 on which nothing is installed, as the README tells a new user to run them.
#
#   tests/debian13/run.sh                    `make demo`, then `make test`
#   tests/debian13/run.sh SUITE...           only these suites, whole, and `make install` at the end
#   tests/debian13/run.sh --built SUITE...   these, with what was built here, as a package may be
#
# What they need is installed there by themselves; what is built there is built by that system's Rust, the
# oldest that is supported. MACHINES_CASES and MPI_CASES choose cases; BACKPORTS names packages to take from
# its backports; TEST_SYSTEM=noble takes Ubuntu 24.04 (trixie). What machines boot, and MPIs of PyPI, are kept
# in the cache. Logs, and a record of what passed, are left in RESULTS (target/debian13). Exit status 77: such
# a system can't be had here.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
cd "$root"
# shellcheck source=tests/system.sh
. "$root/tests/system.sh"

skip() {
    echo "debian13: $*"
    exit 77
}

work=$(mktemp -d "${TMPDIR:-/tmp}/vshmem-debian13.XXXXXX")
finish() {
    as_root -- rm -rf "$work/system"
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 1' HUP INT TERM

as_root -- true 2>"$work/why" || skip "no name spaces of our own: $(cat "$work/why")"
system=${TEST_SYSTEM:-trixie}
archive=$(system "$system") || skip "no system of $system can be had"
mkdir "$work/system"
checkout=$work/system/home/vshmem
mkdir -p "$checkout"
git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$checkout"
git rev-parse HEAD >"$checkout/.commit"
if [ "${1:-}" = --built ]; then
    target=${CARGO_TARGET_DIR:-$root/target}
    scripts/build.sh helpers
    mkdir -p "$checkout/target/release"
    for name in vshmem vshmem-place vshmem-balance libvshmem.so libvshmem_ucx.so doorbell-soak \
        transport-contract; do
        cp "$target/release/$name" "$checkout/target/release/"
    done
else
    # Crates that are here already need not be fetched.
    scripts/cargo.sh --exec fetch --locked
    mkdir -p "$work/system/root/.cargo"
    cp -R "${CARGO_HOME:-$HOME/.cargo}/registry" "$work/system/root/.cargo/"
fi
cp /etc/resolv.conf "$checkout/.resolv.conf" 2>/dev/null || : >"$checkout/.resolv.conf"
# Where registries are reached through a host with a certificate of its own, that is trusted there, too.
cp /etc/ssl/certs/ca-certificates.crt "$checkout/.certificates.crt" 2>/dev/null || true
# Not one for both ways, which `make test-all` has run at the same time.
kept=${VSHMEM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/vshmem}/$system
[ "${1:-}" != --built ] || kept=$kept-built
results=${RESULTS:-$root/target/debian13}
mkdir -p "$kept" "$results" "$work/system/root/.cache/vshmem" "$checkout/target/test"
rm -f "$results"/*.times
status=0
SYSTEM_BINDS="$kept:/root/.cache/vshmem $results:/home/vshmem/target/test" \
    as_root -- "$root/tests/enter.sh" "$work/system" "$archive" \
    env CI="${CI:-}" BACKPORTS="${BACKPORTS:-}" \
    MACHINES_CASES="${MACHINES_CASES:-}" MPI_CASES="${MPI_CASES:-}" \
    /home/vshmem/tests/debian13/try.sh "$@" || status=$?
exit "$status"
