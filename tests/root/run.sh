#!/bin/sh
# Tests a root file system that machines have by NBD: machines are booted that mount it.
#
#   tests/root/run.sh               all tests, with Debian's newest kernel of 6.1
#   tests/root/run.sh TEST...       only these: compare restart save system changed; speed and 9p measure
#
# ROOT_KERNEL is a directory with another kernel: boot/vmlinuz-VERSION and lib/modules, as its package
# unpacks. VSHMEM is the command, by default the one that was built last. ROOT_KVM=1 uses KVM.
#
# Needs gcc, qemu-system-x86, busybox-static, cpio and kmod, and apt for the kernel. What is missing is
# said, and the suite skipped; with CI=true that is a failure.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$here/../..

skip() {
    echo "skip    $*"
    [ "${CI:-}" != true ] || exit 1
    exit 0
}

for program in cc qemu-system-x86_64 busybox cpio modinfo python3; do
    command -v "$program" >/dev/null || skip "machines that mount a root: there is no $program"
done
work=$(mktemp -d "${TMPDIR:-/var/tmp}/vr.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

newest() { # newest PATTERN: the last built of the commands
    find "$root/target" -maxdepth 4 -name vshmem -path "*/$1/vshmem" -type f -printf '%T@ %p\n' 2>/dev/null |
        sort -n | tail -n 1 | cut -d' ' -f2
}
VSHMEM=${VSHMEM:-$(newest release)}
export VSHMEM="${VSHMEM:-$(newest debug)}"
[ -x "$VSHMEM" ] || {
    echo "FAILED  there is no vshmem: make build" >&2
    exit 1
}

if [ -z "${ROOT_KERNEL:-}" ]; then
    version=$("$root/kmod/build.sh" --newest 6.1) &&
        ROOT_KERNEL=$("$root/kmod/build.sh" --package "linux-image-$version") ||
        skip "machines that mount a root: there is no kernel for them"
fi
kernel=$(find "$ROOT_KERNEL/boot" -name 'vmlinuz-*' | head -n 1)
modules=$(find "$ROOT_KERNEL" -path '*/lib/modules/*/kernel' | head -n 1)

find_module() { # find_module NAME: its file; there is none if it is built in
    find "$modules" \( -name "$1.ko" -o -name "$1.ko.*" \) | head -n 1
}

# Modules with those that they need, in the order of loading.
order=0
seen=" "
add_module() { # add_module NAME
    case "$seen" in *" $1 "*) return ;; esac
    seen="$seen$1 "
    file=$(find_module "$1")
    [ -n "$file" ] || return 0
    for needed in $(modinfo -F depends "$file" | tr ',' ' '); do add_module "$needed"; done
    file=$(find_module "$1")
    order=$((order + 1))
    to=$work/initramfs.d/modules/$(printf %03d "$order")-$1.ko
    case "$file" in
    *.xz) xz -dc "$file" >"$to" ;;
    *.zst) zstd -dqc "$file" >"$to" ;;
    *) cp "$file" "$to" ;;
    esac
}

mkdir -p "$work/initramfs.d/bin" "$work/initramfs.d/modules" "$work/initramfs.d/dev" \
    "$work/initramfs.d/proc" "$work/initramfs.d/sys"
for module in crc32c_generic virtio_pci virtio_blk erofs overlay 9pnet_virtio 9p; do
    add_module "$module"
done
cp "$(command -v busybox)" "$work/initramfs.d/bin/busybox"
install -m 755 "$here/init" "$work/initramfs.d/init"
cc -O2 -static -Wall -Wextra "$here/guest/manifest.c" -o "$work/initramfs.d/manifest"
(cd "$work/initramfs.d" && find . | cpio --quiet -o -H newc) >"$work/initramfs"

python3 "$here/run.py" "$kernel" "$work/initramfs" "$work/initramfs.d/manifest" "$work" "$@"
