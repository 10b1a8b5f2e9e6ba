#!/bin/sh
# Tests vshmem.ko in machines that are booted for it.
#
#   tests/kmod/run.sh                 with Debian's newest kernels of 6.1 and 6.12
#   tests/kmod/run.sh SERIES [TEST]   with one of them, and only one test: plain doorbell unplug look pair
#                                     storm
#
# KMOD_ROUNDS (50000) says how often two machines wake each other, KMOD_SECONDS (3) how long calls are made at
# random: by one thread, and in the test storm by threads of several processes that are killed again and
# again, on a kernel that looks after its memory.
#
# With DEBUG_KERNEL=1 the kernels are built by debug-kernel.sh, and have lockdep and KASAN. Without it sparse
# checks both drivers, if it is installed.
#
# Needs gcc, qemu-system-x86, busybox-static, cpio, and apt for the kernels and their headers. For each kernel
# it ends with "N passed, N failed". A kernel that can't be had, or whose headers can't, is skipped; with
# CI=true that is a failure.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
kmod=$here/../../kmod
work=$(mktemp -d "${TMPDIR:-/tmp}/vk.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

busybox=$(command -v busybox) || {
    echo "busybox is not there: install busybox-static" >&2
    exit 1
}

make_initramfs() { # make_initramfs MODULE
    root=$work/root
    rm -rf "$root"
    mkdir -p "$root/bin" "$root/dev" "$root/proc" "$root/sys"
    cp "$busybox" "$root/bin/busybox"
    cp "$1" "$root/vshmem.ko"
    install -m 755 "$here/init" "$root/init"
    cc -O1 -static -Wall -Wextra -I"$kmod" "$here"/guest/*.c -o "$root/guest"
    (cd "$root" && find . | cpio --quiet -o -H newc) >"$work/initramfs"
}

if [ -n "${DEBUG_KERNEL:-}" ]; then
    # They are slow.
    export KMOD_DEBUG=1 KMOD_ROUNDS="${KMOD_ROUNDS:-2000}" KMOD_SECONDS="${KMOD_SECONDS:-30}"
fi

newest() { # newest SERIES: prints the version of the kernel
    if [ -n "${DEBUG_KERNEL:-}" ]; then "$here/debug-kernel.sh" "$1"; else "$kmod/build.sh" --newest "$1"; fi
}

get() { # get SERIES: the kernel and its module, or the reason why they can't be had
    version=$(newest "$1") &&
        kernel=$("$kmod/build.sh" --image "$version") &&
        module=$("$kmod/build.sh" "$version")
}

run_series() { # run_series SERIES [TEST]
    status=0
    get "$1" || status=$?
    if [ "$status" -eq 2 ] && [ "${CI:-}" != true ]; then
        echo "skip    the kernels of $1: they, or their headers, can't be had here (above)"
        return
    elif [ "$status" -ne 0 ]; then
        echo "FAILED  the driver for the kernels of $1 (above)"
        return 1
    fi
    if [ -n "${DEBUG_KERNEL:-}" ]; then
        : # it has no Xen, so only one of the drivers
    elif ! command -v sparse >/dev/null; then
        echo "skip    sparse is not installed"
    elif ! "$kmod/build.sh" --check "$version"; then
        echo "FAILED  sparse has something to say of the drivers (above)"
        return 1
    fi
    make_initramfs "$module"
    shift
    python3 "$here/run.py" "$kernel" "$work/initramfs" "$work" "$@"
}

if [ $# -gt 0 ]; then
    run_series "$@"
else
    failed=0
    for series in 6.1 6.12; do
        run_series "$series" || failed=1
    done
    exit "$failed"
fi
