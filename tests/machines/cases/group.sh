# shellcheck shell=bash
# shellcheck disable=SC2016,SC2154 # other shells expand what is quoted; lib.sh sets it
# A machine without the driver: by the udev rule the group vshmem may use its pools, whatever started it.
udevd=/lib/systemd/systemd-udevd
if [ ! -x $udevd ] || [ ! -x /usr/bin/udevadm ]; then
    echo "skip    the group vshmem: udev is not there"
    return
fi

cluster=$VSHMEM_CLUSTER
export VSHMEM_CLUSTER=${cluster}g
LIMIT=300 vshmem up -n 1 --no-net --driver none >"$work/up" 2>&1 || {
    failed "a machine without the driver comes up" "$(cat "$work/up")"
    return
}
contains "without the driver the pool's memory is mapped as a device's, uncached" "uncached, poll" \
    "$(vshmem exec vm0 -- "$VSHMEM_BIN" pool ls)"
cp "$MACHINES_ROOT/packaging/60-vshmem.rules" "$work/60-vshmem.rules"
# Where other users can get at it.
mkdir -p "$work/group"
cp "$VSHMEM_LIB" "$work/group/libvshmem.so"
use='my $s = semget(0x56, 1, 01600) // die $!; semctl($s, 0, 16, 7) // die $!; print semctl($s, 0, 12, 0)'
as() { # as GROUP: uses the pool as a user of this group alone
    vshmem exec -u 65534:"$1" -e LD_PRELOAD="$work/group/libvshmem.so" vm0 -- perl -e "$use" 2>&1
}
vshmem exec -u 0:0 vm0 -- sh "$programs/udev.sh" "$work/60-vshmem.rules" >"$work/out" 2>&1
equal "what the front end has given to a user stays that user's" "1234 root 600 0" "$(head -n 1 "$work/out")"
equal "udev gives the pool's memory to the group, and turns it on" "0 vshmem 660 1" "$(tail -n 1 "$work/out")"
equal "who is in the group uses the pool" 7 "$(as 4321)"
contains "who is not gets EACCES" "Permission denied" "$(as 65534)"

pool=group-$$
vshmem pool create "$pool" --size 16M && vshmem grant "$pool" vm0 >"$work/out" 2>&1 ||
    failed "a pool is granted" "$(cat "$work/out")"
modes='for file in $(grep -l 0x1110 /sys/bus/pci/devices/*/device); do
    stat -c "%u %G %a" ${file%/*}/resource2
done'
equal "the front end gives a pool to the user and to the group" "$(id -u) vshmem 660" \
    "$(vshmem exec -u 0:0 vm0 -- sh -c "$modes" | tail -n 1)"
vshmem pool rm --force "$pool"
vshmem down
VSHMEM_CLUSTER=$cluster
