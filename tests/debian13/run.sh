#!/bin/sh
# The suite "bare": what the README tells a new user to type works on a system on which nothing is installed.
# In a minimal Debian 13, `make test` installs what it needs, builds with that system's Rust, which is the
# oldest one that is supported, and runs the suites of BARE_SUITES, of machines MACHINES_CASES (A-grant, as
# QEMU differs); then `make install` as root. BARE_SYSTEM=noble takes Ubuntu 24.04 (trixie). Exit status 77:
# such a system can't be had here.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
cd "$root"
# shellcheck source=tests/system.sh
. "$root/tests/system.sh"

skip() {
    echo "bare: $*"
    exit 77
}

work=$(mktemp -d "${TMPDIR:-/tmp}/vshmem-bare.XXXXXX")
finish() {
    as_root -- rm -rf "$work/system"
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 1' HUP INT TERM

as_root -- true 2>"$work/why" || skip "no name spaces of our own: $(cat "$work/why")"
system=${BARE_SYSTEM:-trixie}
archive=$(system "$system") || skip "no system of $system can be had"
mkdir "$work/system"
checkout=$work/system/home/vshmem
mkdir -p "$checkout"
git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$checkout"
# Crates and packages that are here already need not be fetched.
scripts/cargo.sh --exec fetch --locked
mkdir -p "$work/system/root/.cargo"
cp -R "${CARGO_HOME:-$HOME/.cargo}/registry" "$work/system/root/.cargo/"
cp /etc/resolv.conf "$work/resolv.conf" 2>/dev/null || : >"$work/resolv.conf"
cp "$work/resolv.conf" "$checkout/.resolv.conf"
as_root -- "$root/tests/enter.sh" "$work/system" "$archive" /home/vshmem/tests/bare/try.sh \
    "${BARE_SUITES:-conformance hostile install machines}" "${MACHINES_CASES-A-grant}"
