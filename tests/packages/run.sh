#!/bin/sh
# The suite "packages": builds the Debian packages, and installs, uses and purges them in clean systems of
# Debian 12 and 13.
#
#   tests/packages/run.sh            in both
#   tests/packages/run.sh SUITE...   in these: bookworm, trixie
#
# PACKAGES_FULL=1 builds them in Debian 13 too, by its own Rust, and tests those there; and starts a guest
# that examples/cloud-init makes ready (else only cloud-init's own check of it is run). The systems are made
# by mmdebstrap and kept in the cache directory ($VSHMEM_CACHE, by default ~/.cache/vshmem). Needs no root,
# but entries in /etc/subuid. Exit status 77: they can't be had here. Ends with "N passed, N failed".
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
cd "$root"
target=${CARGO_TARGET_DIR:-$root/target}
export CARGO_TARGET_DIR="$target"
# What the packages depend on and what tests them; and what builds them.
USES=systemd,udev,man-db,gcc,libc6-dev,pkg-config,python3,dkms,linux-headers-$(dpkg --print-architecture)
# vshmem place, and the lab.
USES=$USES,libhwloc15,make,python3-matplotlib,python3-pandas,python3-rich,python3-scipy
BUILDS=$USES,libhwloc-dev,libudev-dev,debhelper,dh-dkms,dh-apparmor,dh-python,lintian,cargo,rustc

skip() {
    echo "packages: $*"
    exit 77
}

# shellcheck source=tests/system.sh
. "$root/tests/system.sh"
# shellcheck source=tests/packages/cloud.sh
. "$here/cloud.sh"

work=$(mktemp -d "${TMPDIR:-/tmp}/vshmem-packages.XXXXXX")
finish() {
    # The systems' files have owners of the name space.
    [ ! -e "$work/system" ] || as_root -- rm -rf "$work/system"
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 1' HUP INT TERM

# inside ARCHIVE SCRIPT FILES...: runs a script in a fresh copy of the system, with those files in its
# directory /given
inside() {
    archive=$1 script=$2
    shift 2
    as_root -- rm -rf "$work/system"
    mkdir "$work/system" "$work/system/given"
    cp -R "$script" "$@" "$work/system/given"
    as_root --net -- "$root/tests/enter.sh" "$work/system" "$archive" "/given/${script##*/}"
}

passed=0
failed=0
count() { # count NAME COMMAND...
    name=$1
    shift
    echo "== $name"
    status=0
    "$@" || status=$?
    [ "$status" -ne 77 ] || exit 77
    if [ "$status" -eq 0 ]; then
        passed=$((passed + 1))
    else
        echo "packages: $name failed"
        failed=$((failed + 1))
    fi
}

for tool in mmdebstrap zstd lintian dpkg-buildpackage; do
    command -v $tool >/dev/null || skip "$tool is not there: scripts/prepare.sh --install test"
done
as_root -- true 2>"$work/why" || skip "no name spaces of our own: $(cat "$work/why")"

build() {
    scripts/prepare.sh --check build deb
    make --no-print-directory deb >"$work/log" 2>&1 || {
        cat "$work/log"
        return 1
    }
    # The drivers' version stands in a file of DKMS's, too.
    version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
    grep -qx "PACKAGE_VERSION=\"$version\"" kmod/dkms.conf || {
        echo "kmod/dkms.conf does not have the version $version of Cargo.toml"
        return 1
    }
    "$here/lint.sh" "$target"/deb/*.changes
}

[ $# -gt 0 ] || set -- bookworm trixie
count "the packages are built, and lintian has nothing to say" build
for suite in "$@"; do
    archive=$(system "$suite" "$USES") || skip "no system of $suite can be had"
    count "they serve, and leave nothing, in $suite" inside "$archive" "$here/use.sh" "$here"/program.* \
        "$target"/deb/*.deb
done
if [ "$(dpkg --print-architecture)" = amd64 ]; then
    archive=$(system trixie "$CLOUD") || skip "no system of trixie can be had"
    count "cloud-init takes the example" cloud_takes "$archive"
    if [ "${PACKAGES_FULL:-0}" = 1 ]; then
        count "a guest that starts with it uses a pool" cloud_boots
    fi
fi
if [ "${PACKAGES_FULL:-0}" = 1 ]; then
    archive=$(system trixie "$BUILDS") || skip "no system of trixie can be had"
    # A copy of the checkout, and crates, since the name space has no network.
    scripts/cargo.sh --exec fetch --locked
    mkdir -p "$work/source" "$work/cargo"
    git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$work/source"
    cp -R "${CARGO_HOME:-$HOME/.cargo}/registry" "$work/cargo/"
    count "trixie builds them by its own Rust, and they serve there" inside "$archive" "$here/build.sh" \
        "$work/source" "$work/cargo"
fi
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
