#!/bin/sh
# Builds the Debian packages (debian/), as an ordinary user, into target/deb.
#
#   scripts/deb.sh               builds them
#   scripts/deb.sh --changelog   prints debian/changelog, which is made from Cargo.toml and CHANGELOG.md
#
# What CHANGELOG.md does not call released has a version before (~) or after (+) that of Cargo.toml, with the
# time of the commit. Debian's own packages, revision 1 and higher, would follow on ours.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
target=${CARGO_TARGET_DIR:-$root/target}
out=$target/deb

maintainer() {
    sed -n 's/^Maintainer: //p' debian/control
}

# Seconds since 1970: of the commit, or without git of CHANGELOG.md.
changed() {
    git log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md
}

version() {
    version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
    commit=git$(date -u -d "@$(changed)" +%Y%m%d.%H%M%S)
    if ! grep -qF "## [$version]" CHANGELOG.md; then
        echo "$version~$commit"
    elif awk '/^## / { open = /Unreleased/ } open && /^[*-] / { found = 1 } END { exit !found }' \
        CHANGELOG.md; then
        echo "$version+$commit"
    else
        echo "$version"
    fi
}

distribution() { # Ubuntu's lintian knows releases only
    if dpkg-vendor --derives-from Ubuntu; then
        sed -n 's/^VERSION_CODENAME=//p' /etc/os-release
    else
        echo unstable
    fi
}

changelog() {
    cat <<CHANGELOG
vshmem ($(version)-0vshmem1) $(distribution); urgency=medium

  * Built from the project's own source; changelog.gz says what is new in it.

 -- $(maintainer)  $(date -u -R -d "@$(changed)")
CHANGELOG
}

build() {
    rm -rf "$out"
    mkdir -p "$out/package"
    # dpkg-buildpackage writes into debian/ and beside the source, so it gets a copy, which has the checkout's
    # files by UPSTREAM.
    cp -R debian "$out/package"
    changelog >"$out/package/debian/changelog"
    cd "$out/package"
    # Not -d for want of something: prepare.sh has looked, and rustup's cargo is no package.
    UPSTREAM=$root CARGO_TARGET_DIR=$target DEB_BUILD_OPTIONS="${DEB_BUILD_OPTIONS:-noautodbgsym}" \
        dpkg-buildpackage -us -uc -b -d
    cd "$root"
    rm -rf "$out/package"
    echo "The packages are:"
    ls "$out"/*.deb
}

case ${1:-} in
--changelog) changelog ;;
"") build ;;
*)
    sed -n '2,9s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
