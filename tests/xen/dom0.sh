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
    [ ! -e "/modules/$module.ko" ] || insmod "/modules/$module.ko" || echo "FAILED  dom0 loads $module"
done
mount -t xenfs xenfs /proc/xen
ln -s /run /var/run
mkdir -p /run/xen /run/xenstored /var/lib/xen /var/log/xen/console /var/lib/xenstored

xenstored && xen-init-dom0 >/dev/null && xenconsoled --log=guest --log-dir=/var/log/xen/console ||
    echo "FAILED  Xen's services start"

# fault CASE: whether a guest has died that it relies on, by a triple fault: one that was not up yet is
# started again by `need`. In the emulator that happens now and then, mostly before a guest does anything of
# its own, but also while it works or idles. It is the emulator's way from Xen into a guest that goes wrong:
# of the registers that Xen prints then, on the console, RIP, RSP and CR3 are mostly Xen's own, or RIP is the
# guest's next instruction after a hypercall. It happens to guests that keep one processor, too; and if one
# thread of QEMU's has both processors, a guest's kernel is interrupted where it has forbidden that.
fault() {
    for guest in $(xl list | awk '$5 ~ /sr.$/ { print $1 }'); do
        [ ! -e "/tmp/$guest.up" ] || return 0
    done
    # Domains of vshmem up are gone by now.
    [ "$1" = up ] && xl dmesg -c | grep -q '^(XEN) .*Triple fault'
}

unsteady() { # unsteady WHAT: tests/unsteady.txt has the cause
    echo "unsteady: $1"
}

# run NAME: 1 if it was ended because a guest had a triple fault
run() {
    forget_dead
    xl dmesg -c >/dev/null
    # A case that ends early ends alone.
    setsid sh -c '. /lib.sh && . "/cases/$1.sh"' sh "$1" </dev/null &
    pid=$!
    if measures "$1"; then
        wait $pid || echo "FAILED  $1 ended early"
        return
    fi
    seconds=0
    while sleep 1 && kill -0 $pid 2>/dev/null; do
        # To ask takes a tenth of a second.
        seconds=$((seconds + 1))
        if [ $((seconds % 5)) -eq 0 ] && fault "$1"; then
            kill -KILL -$pid
            return 1
        fi
    done
    wait $pid || echo "FAILED  $1 ended early"
    # In its last seconds.
    ! fault "$1"
}

# measures CASE: nothing of ours may be in what it measures
measures() {
    [ "$1" = papers ] || [ "$1" = hypervisors ]
}

# forget_dead: guests that died between cases are made anew by who needs them; nobody relies on the others
forget_dead() {
    for file in /tmp/*.id; do
        guest=${file##*/}
        guest=${guest%.id}
        (. /lib.sh && has_died "$guest" && echo "        $guest has died" && destroy "$guest")
    done
    rm -f /tmp/*.up
}

# clean: nothing is left of a case that was ended
clean() {
    killall -KILL vshmem perl python3 transport-contract xl xen-qemu-system-i386 >/dev/null 2>&1
    XDG_RUNTIME_DIR=/run/up vshmem down >/dev/null 2>&1
    # One may be about to be there.
    for _ in 1 2 3; do
        for id in $(xl list | awk 'NR > 1 && $2 > 0 { print $2 }'); do
            xl destroy "$id"
        done
        sleep 2
    done
    for pool in /dev/vshmem-xen/*; do
        [ ! -e "$pool" ] || vshmem xen withdraw "${pool##*/}"
    done
    umount /saved 2>/dev/null
    rm -rf /tmp/* /run/up /run/other
}

# shellcheck disable=SC2013 # words are meant
for name in $(cat /cases/selected); do
    for try in 1 2 3 4 5; do
        echo "== $name"
        run "$name" && break
        echo "void: a guest had a triple fault in the midst of it"
        unsteady "$name: QEMU has ended a guest by a triple fault"
        [ $try -lt 5 ] || echo "FAILED  $name was begun five times in vain"
        clean
    done
done
dmesg | grep -E 'BUG:|WARNING:|Oops|vshmem' | tail -n 20
# What a guest's kernel said, if it complained.
for log in /var/log/xen/console/*.log; do
    grep -qE 'BUG:|WARNING:|Oops|Call Trace|panic' "$log" && echo "== $log" && cat "$log"
done
echo "all cases are done"
sync
poweroff -f
