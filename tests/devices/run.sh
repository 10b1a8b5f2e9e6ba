#!/bin/sh
# Tests devices that machines have for themselves, end to end and without hardware: an emulated machine has an
# IOMMU, NVMe drives, one with virtual functions, and KVM (as for tests/kvm/run.sh); in it, machines are given
# them.
#
#   tests/devices/run.sh
#
# VSHMEM_BIN and VSHMEM_LIB name the command and the library, as for tests/machines/run.sh. Takes half an hour
# if others are busy. Ends with "N passed, N failed". Status 77: no kernel can be had, and it is said why.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
VSHMEM_BIN=${VSHMEM_BIN:-$target/release/vshmem}
VSHMEM_LIB=${VSHMEM_LIB:-$target/release/libvshmem.so}
# shellcheck source=tests/lib/modules.sh
. "$root/tests/lib/modules.sh"

# Debian's kernel with all its modules: that of machines has only those which they need.
status=0
version=$("$root/kmod/build.sh" --newest 6.1) &&
    kernel=$("$root/kmod/build.sh" --image "$(echo "$version" | sed 's/-cloud-/-/')") || status=$?
if [ "$status" -ne 0 ]; then
    echo "The kernel for an emulated machine with devices can't be had."
    [ "$status" -eq 2 ] && exit 77 || exit 1
fi

work=$(mktemp -d "${TMPDIR:-/tmp}/devices.XXXXXX")
cluster=devices$$
finish() {
    "$VSHMEM_BIN" down -c "$cluster" >/dev/null 2>&1 || true
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 1' HUP INT TERM
chmod 755 "$work"
mkdir "$work/bin" "$work/modules"

kernel_modules "$kernel" "$work/modules" irqbypass ccp kvm kvm-amd vfio vfio_virqfd vfio_iommu_type1 \
    vfio-pci-core vfio-pci >"$work/modules/load.sh"
# Both kernels have drives.
kernel_modules "$kernel" "$work/modules" crct10dif_common crct10dif_generic crc-t10dif crc64 \
    crc64_rocksoft_generic crc64-rocksoft t10-pi nvme-core nvme >"$work/modules/drives.sh"
# The machine's QEMU, with further devices.
sed "s|@QEMU@|$(command -v qemu-system-x86_64)|" "$here/qemu.py" >"$work/bin/qemu-system-x86_64"
chmod 755 "$work/bin/qemu-system-x86_64"

cache=${VSHMEM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/vshmem}
PATH="$work/bin:$PATH" "$VSHMEM_BIN" up -c "$cluster" -n 1 --cpus 1 --memory 4G --pool-size 1M --no-net \
    --no-doorbell --accel tcg --kernel "$kernel" --share "$root" --share "$target" \
    --share "$(dirname "$VSHMEM_BIN")" --share "$(dirname "$VSHMEM_LIB")" --share "$cache" --share "$work" \
    2>"$work/up" || {
    cat "$work/up"
    exit 1
}
tail -n 1 "$work/up"
"$VSHMEM_BIN" exec -c "$cluster" -u root -e VSHMEM_BIN="$VSHMEM_BIN" -e VSHMEM_LIB="$VSHMEM_LIB" \
    -e VSHMEM_CACHE="$cache" -e XDG_RUNTIME_DIR=/run -e TMPDIR=/tmp -e KERNEL="$kernel" \
    -e MODULES="$work/modules" vm0 -- "$here/inside.sh"
