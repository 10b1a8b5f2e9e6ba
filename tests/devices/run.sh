#!/bin/sh
# Tests devices that machines have for themselves, end to end and without hardware: an emulated machine has an
# IOMMU, NVMe drives and a network card, some with virtual functions, and KVM (tests/lib/nested.sh); in it,
# machines are given them, by QEMU and by libvirt. It also has pages of 1 GiB.
#
#   tests/devices/run.sh           all cases
#   tests/devices/run.sh NAME...   only these: the names of the files in cases/
#
# VSHMEM_BIN and VSHMEM_LIB name the command and the library, as for tests/machines/run.sh. Takes half an hour
# if others are busy. Ends with "N passed, N failed". Status 77: no kernel can be had, or no QEMU with such a
# network card, and it is said why.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
# shellcheck source=tests/lib/nested.sh
. "$root/tests/lib/nested.sh"

nested_kernel
nested_modules vfio vfio vfio_virqfd vfio_iommu_type1 vfio-pci-core vfio-pci
# Both kernels have drives, and cards.
nested_modules nvme crct10dif_common crct10dif_generic crc-t10dif crc64 crc64_rocksoft_generic \
    crc64-rocksoft t10-pi nvme-core nvme
nested_modules igb dca i2c-algo-bit igb igbvf
nested_up "iommu nvme igb gigantic=3" --memory 7G
nested_run -u root vm0 -- "$here/inside.sh" "$@"
