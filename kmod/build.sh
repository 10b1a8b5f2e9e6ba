#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Builds vshmem.ko, and prints its path. Needs no root, and leaves the checkout as it is.
#
#   kmod/build.sh                    for the running kernel
#   kmod/build.sh VERSION            for the kernel VERSION, e.g. 6.1.0-56-amd64
#   kmod/build.sh --xen [VERSION]    the same for vshmem_xen.ko, the driver for Xen domains
#   kmod/build.sh --newest SERIES    no build: prints the version of Debian's newest cloud kernel of 6.1, say
#   kmod/build.sh --image VERSION    no build: prints the path of that kernel's image
#   kmod/build.sh --source SERIES    no build: prints the path of Debian's source of 6.1 or 6.12, an archive
#   kmod/build.sh --package NAME[/SUITE]   no build: prints the directory into which a package is unpacked
#   kmod/build.sh --check VERSION    builds both under sparse, which must have nothing to say
#
# Headers are those of /lib/modules/VERSION/build. Where there are none, packages are downloaded by apt (the
# system's, and Debian's also from bookworm-backports, through lists of our own) and unpacked below the cache
# directory, as images are: $VSHMEM_CACHE, by default ~/.cache/vshmem. Each thing is fetched and built once.
# The exit status is 2 if one can't be fetched.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
cache=${VSHMEM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/vshmem}/kmod

sources="$(cd "$here" && echo *.[ch] xen/*.[ch]) Kbuild"

fail() {
    echo "kmod/build.sh: $*" >&2
    exit 1
}

# For what others have and we can't get: exit status 2.
missing() {
    echo "kmod/build.sh: $*" >&2
    exit 2
}

# apt with lists of our own, so that neither root nor the system's settings are needed: those of Debian 12 and
# its backports, where there are Debian's keys, and of another system its own.
own_apt() {
    apt=$cache/apt
    if [ ! -e "$apt/ready" ]; then
        mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial" "$apt/parts"
        keys=/usr/share/keyrings/debian-archive-keyring.gpg
        : >"$apt/sources.list"
        if [ -e "$keys" ]; then
            for suite in bookworm bookworm-updates bookworm-backports; do
                echo "deb [signed-by=$keys] http://deb.debian.org/debian $suite main"
            done >"$apt/sources.list"
            echo "deb [signed-by=$keys] http://deb.debian.org/debian-security bookworm-security main" \
                >>"$apt/sources.list"
        fi
        if ! grep -q '^VERSION_CODENAME=bookworm' /etc/os-release; then
            cp /etc/apt/sources.list /etc/apt/sources.list.d/* "$apt/parts" 2>/dev/null || true
            [ ! -e "$apt/parts/sources.list" ] || mv "$apt/parts/sources.list" "$apt/parts/system.list"
        fi
        cat >"$apt/apt.conf" <<CONF
Dir::Etc::sourcelist "$apt/sources.list";
Dir::Etc::sourceparts "$apt/parts";
Dir::State::lists "$apt/lists";
Dir::Cache "$apt/cache";
CONF
        APT_CONFIG=$apt/apt.conf apt-get -qq update 2>/dev/null ||
            missing "the package lists can't be fetched"
        : >"$apt/ready"
    fi
    export APT_CONFIG="$apt/apt.conf"
}

# download PACKAGE DIRECTORY: unpacks it there
download() {
    mkdir -p "$2"
    own_apt
    debs=$(mktemp -d "$cache/debs.XXXXXX")
    (cd "$debs" && apt-get -qq download "$1" >/dev/null 2>&1) ||
        missing "there is no package $1 to be downloaded"
    dpkg-deb -x "$debs"/*.deb "$2" || fail "the package $1 can't be unpacked into $2"
    rm -rf "$debs"
}

# The packages that the headers of a kernel consist of, and those packages' own parts.
parts_of_headers() {
    own_apt
    echo "linux-headers-$1"
    apt-cache depends "linux-headers-$1" |
        sed -n 's/^ *Depends: \(linux-headers-.*-common\|linux-kbuild-.*\)$/\1/p'
}

headers() { # headers VERSION: prints the build directory
    for tree in "/lib/modules/$1/build" "$cache/debug/$1"; do
        [ ! -e "$tree/Makefile" ] || {
            echo "$tree"
            return
        }
    done
    unpacked=$cache/headers/$1
    if [ ! -e "$unpacked" ]; then
        rm -rf "$unpacked.new"
        parts=$(parts_of_headers "$1") || missing "there are no headers for the kernel $1"
        for package in $parts; do
            download "$package" "$unpacked.new" || exit
        done
        # The makefiles know each other by absolute paths.
        sed -i "s|/usr/src/|$unpacked/usr/src/|" "$unpacked.new/usr/src/linux-headers-$1/Makefile"
        mv "$unpacked.new" "$unpacked"
    fi
    echo "$unpacked/usr/src/linux-headers-$1"
}

image() { # image VERSION: prints the path of the kernel
    own=$cache/debug/$1/arch/x86/boot/bzImage
    [ ! -e "$own" ] || {
        echo "$own"
        return
    }
    where=$(unpacked "images/$1" "linux-image-$1") || exit
    echo "$where/boot/vmlinuz-$1"
}

source_of() { # source_of SERIES: prints the path of an archive
    where=$(unpacked "source/$1" "linux-source-$1") || exit
    echo "$where/usr/src/linux-source-$1.tar.xz"
}

package() { # package NAME[/SUITE]: prints the directory of its files
    unpacked "packages/${1%/*}" "$1"
}

unpacked() { # unpacked PLACE PACKAGE: prints where the cache has it, once it is there whole
    if [ ! -e "$cache/$1" ]; then
        rm -rf "${cache:?}/$1.new"
        download "$2" "$cache/$1.new" >&2
        mv "$cache/$1.new" "$cache/$1"
    fi
    echo "$cache/$1"
}

# build VERSION [MODULE]: builds all drivers for it, prints the path of one
build() {
    module=${2:-vshmem}
    made=$cache/modules/$1/$(cd "$here" && cat $sources | sha256sum | cut -c1-16)
    if [ ! -e "$made" ]; then
        tree=$(headers "$1")
        if ! make_in "$tree" "$made.$$" >&2; then
            rm -rf "$made.$$"
            fail "the drivers can't be built for $1 (above)"
        fi
        mv -T "$made.$$" "$made" 2>/dev/null || rm -rf "$made.$$" # another process was faster
    fi
    [ -e "$made/$module.ko" ] || fail "the kernel $1 knows no Xen"
    echo "$made/$module.ko"
}

# make_in TREE DIRECTORY [SETTING...]: copies the sources there and builds them; prints warnings, or all if it
# fails
make_in() {
    tree=$1 to=$2
    shift 2
    mkdir -p "$to/xen"
    for file in $sources; do cp "$here/$file" "$to/$file"; done
    # The compiler of the kernel, if it is there.
    cc=$(sed -n 's/^CONFIG_CC_VERSION_TEXT="\([^ ]*\) .*/\1/p' "$tree/.config" 2>/dev/null)
    cc=${cc##*-linux-gnu-}
    command -v "${cc:-gcc}" >/dev/null || cc=gcc
    make -C "$tree" M="$to" CC="${cc:-gcc}" \
        CONFIG_DEBUG_INFO_BTF_MODULES= KCFLAGS="-Wall -Wextra -Wno-unused-parameter \
-Wno-sign-compare -Wno-missing-field-initializers -Wno-type-limits -Wno-shift-negative-value" \
        "$@" modules >"$to/log" 2>&1 || {
        cat "$to/log"
        return 1
    }
    grep -iE 'warning:|error:' "$to/log" || true
}

check() { # check VERSION
    command -v sparse >/dev/null || missing "sparse is not installed"
    tree=$(headers "$1")
    to=$(mktemp -d "$cache/check.XXXXXX")
    trap 'rm -rf "$to"' EXIT
    make_in "$tree" "$to" C=2 CHECK=sparse >"$to/said" || true
    cat "$to/said"
    files=$(echo "$sources" | tr ' ' '\n' | grep -c '\.c$')
    [ "$(grep -c '^  CHECK ' "$to/log")" -ge "$files" ] ||
        fail "sparse has not seen all files: does the kernel $1 know Xen?"
    [ ! -s "$to/said" ] || exit 1
}

newest() { # newest SERIES: prints the version of the newest cloud kernel
    own_apt
    # Debian has a kernel's headers for hours before the signed image, which is known by its name only then.
    apt-cache search --names-only "^linux-image-$1\\..*-cloud-amd64$" |
        sed -n "s/^linux-image-\($1\.[^ ]*\) .*/\1/p" |
        sort -V | tail -n 1 | grep . || missing "there is no kernel of the series $1"
}

case ${1:-} in
--newest) newest "${2:?a series is missing}" ;;
--image) image "${2:?a version is missing}" ;;
--source) source_of "${2:?a series is missing}" ;;
--package) package "${2:?a package is missing}" ;;
--check) check "${2:-$(uname -r)}" ;;
--xen) build "${2:-$(uname -r)}" vshmem_xen ;;
-h | --help) sed -n '3,17s/^# \{0,1\}//p' "$0" ;;
-*) fail "there is no option $1" ;;
*) build "${1:-$(uname -r)}" ;;
esac
