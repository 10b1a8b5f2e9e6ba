#!/bin/sh
# Starts a guest of your own by plain QEMU, with all that Vshmem needs, and gives it a pool.
#
#   guest.sh NAME POOL QEMU-OPTION...
#
#   guest.sh db work -m 2G -smp 2 -drive file=db.qcow2,if=virtio -nic user,model=virtio-net-pci
#   guest.sh db work -m 1G -kernel vmlinuz -initrd initrd.img -append console=ttyS0 -serial file:db.log
#
# The pool is made if there is none of the name. It can be used when the guest has started with Vshmem in it:
# ../cloud-init makes one ready. QEMU goes on in the background, in the directory /: files that it opens later
# have absolute paths. Afterwards:
#
#   vshmem ps                                       # (attached)  db  running  ...  work
#   vshmem revoke work db                           # takes the pool away
#   vshmem detach db                                # lets go of the guest, which runs on
#   kill $(cat $XDG_RUNTIME_DIR/db.pid)             # turns it off
#
# ACCEL   how QEMU runs it, "-accel kvm -accel tcg -cpu max" if unset: on KVM, without it slowly
# PORTS   what ports it has for pools, as `vshmem attach --print` takes it:
#         "--spare-pools 2 --largest-pool 256M"; a pool that is made here is as large as the largest, or 1G
# WAIT    how many seconds it may take to start: 120
set -eu

[ $# -ge 2 ] || { sed -n '2,7s/^# \{0,1\}//p' "$0" && exit 2; }
name=$1 pool=$2
shift 2
sockets=${XDG_RUNTIME_DIR:-/run}
monitor=$sockets/$name.qmp # for Vshmem alone: QEMU talks to one program at a time

# The type of the machine, the monitor, the channel to the front end, and ports that a pool can be plugged
# into. They are printed for a script, one to a line.
# shellcheck disable=SC2046,SC2086 # options are words
set -- $(vshmem attach "$name" --qmp "$monitor" --print ${PORTS:-} | tr -d '\\') \
    ${ACCEL:--accel kvm -accel tcg -cpu max} "$@"
qemu-system-x86_64 -name "$name" -display none -daemonize -pidfile "$sockets/$name.pid" "$@"

vshmem attach "$name" --qmp "$monitor"
largest=$(echo "${PORTS:-}" | sed -n 's/.*--largest-pool[ =]*\([^ ]*\).*/\1/p')
case $pool in
*/*) [ -e "$pool" ] ;;
*) vshmem pool ls | grep -q "^$pool " ;;
esac || vshmem pool create "$pool" --size "${largest:-1G}"
# It is plugged in at once. Its front end says that it can be used when the guest has started; to repeat the
# command is no failure.
echo "$name: waiting until it has started with Vshmem in it" >&2
deadline=$(($(date +%s) + ${WAIT:-120})) before=
until said=$(vshmem grant "$pool" "$name" --json 2>&1) &&
    case $said in *'"usable":true'*) true ;; *) false ;; esac; do
    case $said in
    '{'* | "$before") ;; # it is there, and the guest has not told yet
    *) echo "$said" >&2 && before=$said ;;
    esac
    kill -0 "$(cat "$sockets/$name.pid" 2>/dev/null)" 2>/dev/null || {
        echo "$0: QEMU of $name has ended" >&2
        exit 1
    }
    [ "$(date +%s)" -lt "$deadline" ] || {
        echo "$0: $name runs, and can't use $pool yet: $said" >&2
        [ -n "${ACCEL:-}" ] || echo "If it does not boot: ACCEL='-accel tcg -cpu max' does without KVM." >&2
        exit 1
    }
    sleep 1
done
echo "$name can use the pool $pool"
