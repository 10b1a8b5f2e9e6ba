#!/bin/sh
# The first process of dom0: starts what Xen needs, then the cases, then ends the machine.
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/shm /dev/pts
mount -t tmpfs shm /dev/shm
# xl and xenconsoled talk by pseudo-terminals.
mount -t devpts pts /dev/pts
for module in xen-evtchn xen-gntdev xen-gntalloc xen-privcmd xenfs vshmem_xen; do
    insmod "/modules/$module.ko" || echo "FAILED  dom0 loads $module"
done
mount -t xenfs xenfs /proc/xen
ln -s /run /var/run
mkdir -p /run/xen /run/xenstored /var/lib/xen /var/log/xen/console /var/lib/xenstored

xenstored && xen-init-dom0 >/dev/null && xenconsoled --log=guest --log-dir=/var/log/xen/console ||
    echo "FAILED  Xen's services start"

# shellcheck disable=SC2013 # words are meant
for name in $(cat /cases/selected); do
    echo "== $name"
    # A case that ends early ends alone.
    # shellcheck source=/dev/null
    (. /lib.sh && . "/cases/$name.sh") </dev/null || echo "FAILED  $name ended early"
done
dmesg | grep -E 'BUG:|WARNING:|Oops|vshmem' | tail -n 20
# What a guest's kernel said, if it complained.
for log in /var/log/xen/console/*.log; do
    grep -qE 'BUG:|WARNING:|Oops|Call Trace|panic' "$log" && echo "== $log" && cat "$log"
done
echo "all cases are done"
sync
poweroff -f
