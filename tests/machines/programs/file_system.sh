# $1: the numbers of a DAX device, as 1.0. Its persistent memory gets a file system with dax instead.
number=${1%.*}
echo "dax$1" >/sys/bus/nd/drivers/dax_pmem/unbind
echo >"/sys/bus/nd/devices/dax$1/namespace"
[ -e "/dev/pmem$number" ] || echo "namespace$number.0" >/sys/bus/nd/drivers/nd_pmem/bind
mkfs.ext4 -q -b 4096 "/dev/pmem$number"
mkdir -p /run/files
mount -o dax "/dev/pmem$number" /run/files
grep /run/files /proc/mounts
