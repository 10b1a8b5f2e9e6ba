#!/bin/sh
# The first process of a guest: does what dom0 asks by XenStore, one command after the other, and says what
# came of it.
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/shm /dev/pts
mount -t tmpfs shm /dev/shm
mount -t devpts pts /dev/pts
for module in xen-evtchn xen-gntdev xen-gntalloc vshmem_xen; do
    [ ! -e "/modules/$module.ko" ] || insmod "/modules/$module.ko"
done
ip link set lo up

hostname "$(xenstore-read name)"
last=0
xenstore-write data/answer "0 0"
while :; do
    asked=$(xenstore-read data/ask 2>/dev/null)
    number=${asked%% *}
    if [ -n "$number" ] && [ "$number" != "$last" ]; then
        last=$number
        sh -c "${asked#* }" </dev/null >/tmp/answer 2>&1
        code=$?
        # A key of a guest has 2048 bytes at most.
        xenstore-write data/answer "$number $code $(tail -c 1800 /tmp/answer)"
    else
        # Returns at the next change.
        timeout 1 xenstore-watch -n 2 data/ask >/dev/null 2>&1
    fi
done
