#!/bin/sh
# Builds a kernel that watches the driver, by lockdep, KASAN and more (debug.config), and prints its version,
# by which kmod/build.sh then knows it.
#
#   tests/kmod/debug-kernel.sh SERIES
#
# It is made of Debian's source of 6.1 or 6.12, once, in the cache directory. That takes some ten minutes on
# two processors and 2 GB meanwhile, and needs bc, bison, flex and libelf-dev. The exit status is 2 if the
# source can't be had.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
cache=${VSHMEM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/vshmem}/kmod/debug
ending=-vshmem-$(sha256sum <"$here/debug.config" | cut -c1-8)

for built in "$cache/$1".*"$ending"; do
    if [ -e "$built" ]; then
        basename "$built"
        exit
    fi
done

archive=$("$here/../../kmod/build.sh" --source "$1")
mkdir -p "$cache"
tree=$(mktemp -d "$cache/new.XXXXXX")
trap 'rm -rf "$tree"' EXIT
trap 'exit 1' HUP INT TERM
tar -C "$tree" --strip-components=1 -xf "$archive"
cd "$tree"
{
    make -s tinyconfig
    scripts/kconfig/merge_config.sh -m .config "$here/debug.config"
    scripts/config --set-str LOCALVERSION "$ending"
    make -s olddefconfig
} >log 2>&1
grep '^CONFIG.*=y' "$here/debug.config" | while read -r line; do
    grep -qx "$line" .config || {
        echo "tests/kmod/debug-kernel.sh: Linux $1 does not take $line" >&2
        exit 1
    }
done
echo "building a kernel $1 with lockdep and KASAN" >&2
nice -n 19 make -s -j"$(nproc)" bzImage modules >log 2>&1 || {
    tail -n 30 log >&2
    exit 1
}
version=$(make -s kernelrelease)
# What modules are built with stays.
for part in * arch/*; do
    case $part in
    arch | arch/x86 | include | scripts | tools | Makefile | Module.symvers) ;;
    *) rm -rf "$part" ;;
    esac
done
mv -T "$tree" "$cache/$version"
echo "$version"
