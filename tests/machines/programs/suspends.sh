#!/bin/busybox sh
# shellcheck shell=dash
# The first process of a machine that works in a pool, and suspends itself for each of two lines that come by
# its second serial port.
/bin/busybox --install -s /bin
export PATH=/bin
mkdir -p /dev /proc /sys
mount -t devtmpfs devtmpfs /dev
exec </dev/null >/dev/console 2>&1
mount -t proc proc /proc
mount -t sysfs sysfs /sys
for module in /modules/*; do
    insmod "$module"
done
VSHMEM_POOL=/dev/vshmem0 LD_PRELOAD=/libvshmem.so /storm work 1 &
worker=$!
exec 3</dev/ttyS1
echo works
for round in 1 2; do
    read -r _ <&3
    echo mem >/sys/power/state && echo "back from memory $round"
done
wait "$worker"
echo "work ended with $?"
poweroff -f
