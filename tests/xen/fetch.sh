#!/bin/bash
# Downloads and unpacks Xen, its tools and a kernel, once, and prints the directory. Installs nothing, needs
# no root.
set -eu

packages="xen-hypervisor-4.17-amd64 xen-utils-4.17 xenstore-utils libxenstore4 libxenmisc4.17 libxencall1
    libxendevicemodel1 libxenevtchn1 libxenforeignmemory1 libxengnttab1 libxenhypfs1 libxentoolcore1
    libxentoollog1 libyajl2 qemu-system-xen libxen-dev"
cache=${VSHMEM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/vshmem}/xen

fail() {
    echo "tests/xen/fetch.sh: $*" >&2
    exit 1
}

# No cloud kernel: those are no dom0.
kernel=$(apt-cache depends linux-image-amd64 2>/dev/null |
    sed -n 's/^ *Depends: \(linux-image-[0-9].*-amd64\)$/\1/p' | tail -n 1)
[ -n "$kernel" ] || fail "apt knows no kernel: run apt-get update"
version=$(apt-cache policy xen-hypervisor-4.17-amd64 | sed -n 's/^ *Candidate: *//p')
[ -n "$version" ] || fail "apt knows no Xen 4.17: this is not Debian 12, or apt-get update has not run"
unpacked=$cache/$version-$kernel-dev
if [ ! -e "$unpacked" ]; then
    mkdir -p "$cache"
    new=$(mktemp -d "$cache/new.XXXXXX")
    trap 'rm -rf "$new"' EXIT
    mkdir "$new/debs" "$new/root"
    # shellcheck disable=SC2086 # a list of words
    (cd "$new/debs" && timeout 300 apt-get -qq -o APT::Sandbox::User=root download $packages "$kernel" >&2) ||
        fail "the packages can't be downloaded"
    for package in "$new"/debs/*.deb; do
        dpkg-deb -x "$package" "$new/root" || fail "$package can't be unpacked"
    done
    echo "${kernel#linux-image-}" >"$new/root/kernel"
    # Somebody else may have been faster.
    mv -T "$new/root" "$unpacked" 2>/dev/null || [ -e "$unpacked/kernel" ] || fail "$unpacked can't be made"
fi
echo "$unpacked"
