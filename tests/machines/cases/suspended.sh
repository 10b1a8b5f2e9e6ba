# shellcheck shell=bash
# shellcheck disable=SC2154 # lib.sh sets it
# A machine that suspends itself to memory (ACPI S3) while others work in the same IPC objects (storm.c), and
# is woken again. It is one that QEMU runs on its own, with all its files in memory: one of `vshmem up` has
# them from the host by 9p, which Linux can't resume, and so it refuses to suspend.

cluster=$VSHMEM_CLUSTER
# Those that other cases share take processor time.
vshmem down >/dev/null 2>&1
export VSHMEM_CLUSTER=${cluster}g
qemu=
clean_up() {
    [ -z "$qemu" ] || kill -KILL "$qemu" 2>/dev/null || true
    rm -f "$work/qmp.sock" "$work"/say.*
}

busybox=$(command -v busybox) || {
    failed "a machine has a shell" "install busybox-static"
    exit 1
}
cc -std=gnu17 -O1 -Wall -Wextra -o "$work/storm" "$programs/storm.c" || exit 1

boot_one_for_its_files
if ! has_driver; then
    echo "skip    a machine that suspends itself: there is no vshmem.ko for its kernel"
    vshmem down
    exit 0
fi
contains "a machine whose files come from the host does not suspend" "Read-only file system" \
    "$(vshmem exec -u root vm0 -- sh -c 'echo mem >/sys/power/state' 2>&1)"
kernel=$(kernel_of_cluster)

# All that it runs, behind what machines boot from: that has the drivers.
root=$work/root
mkdir -p "$root/bin"
cp "$busybox" "$root/bin/busybox"
cp "$VSHMEM_LIB" "$root/libvshmem.so"
cp "$work/storm" "$root/storm"
for library in $(ldd "$VSHMEM_LIB" "$work/storm" | grep -o '/[^ ]*\.so[^ :]* (' | tr -d '(' | sort -u); do
    mkdir -p "$root/$(dirname "$library")"
    cp -L "$library" "$root/$library"
done
cp "$programs/suspends.sh" "$root/own"
(cd "$root" && find . | cpio --quiet -o -H newc) >>"$work/initramfs"

on_host "$work/storm" begin
LIMIT=1000 on_host "$work/storm" receive >"$work/received" 2>&1 &
receiver=$!
LIMIT=1000 on_host "$work/storm" work 0 >"$work/life.0" 2>&1 &
workers=($!)
LIMIT=1000 vshmem run --vm vm0 -n 1 --no-prefix -- "$work/storm" work 2 >"$work/life.2" 2>&1 &
workers+=($!)

mkfifo "$work/say.in" "$work/say.out"
# Of the old type: what QEMU's q35 has of ACPI's power management does not answer any more after the first
# time.
backend=$XDG_RUNTIME_DIR/vshmem/.agent/pools/cluster.$VSHMEM_CLUSTER
# shellcheck disable=SC2046 # options are words
qemu-system-x86_64 -name "own-$VSHMEM_CLUSTER" -nodefaults -no-user-config -no-reboot -display none \
    -machine pc $(accel_options) -smp 1,maxcpus=2 -m 512 \
    -kernel "$kernel" -initrd "$work/initramfs" \
    -append "console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable no_timer_check rdinit=/own" \
    -chardev "socket,id=pool,path=$backend" -device ivshmem-doorbell,vectors=2,chardev=pool \
    -qmp "unix:$work/qmp.sock,server=on,wait=off" -serial "file:$work/console" -serial "pipe:$work/say" \
    2>"$work/qemu.log" &
qemu=$!
tell_qemu() { /usr/bin/python3 "$programs/qmp.py" "$work/qmp.sock" "$@"; }
WITHIN=90 eventually "another machine boots" grep -q works "$work/console"
grep -q works "$work/console" || {
    cat "$work/qemu.log"
    exit 1
}
look() { LIMIT=100 on_host "$work/storm" look 0 1 2 >"$work/looked" 2>&1; }
code "processes in it, in a machine of ours and on the host work" 0 look

suspended() { tell_qemu query-status | grep -q '"suspended"'; }
before=$(members_of "cluster.$VSHMEM_CLUSTER")
for round in 1 2; do
    echo >"$work/say.in"
    WITHIN=60 eventually "it suspends to memory" suspended
    # Longer than anybody waits for a lock that it may hold.
    [ "$round" -eq 2 ] || sleep $((25 * slow))
    equal "it is not taken for dead" "$before" "$(members_of "cluster.$VSHMEM_CLUSTER")"
    tell_qemu system_wakeup >/dev/null
    WITHIN=60 eventually "it comes back" grep -q "back from memory $round" "$work/console"
    if look; then
        passed "all is right then"
    else
        failed "all is right then" "$(tail -n 3 "$work/looked")" \
            "$(tail -n 3 "$work/console" "$work"/life.* "$work/received")"
        exit 1
    fi
done
passed "they have done $(cat "$work/looked")"

on_host "$work/storm" stop
for worker in "${workers[@]}"; do
    ended=0
    wait "$worker" || ended=$?
    equal "the work of the others ends well" 0 "$ended"
done
WITHIN=60 eventually "and that in it" grep -q "work ended with 0" "$work/console"
kill "$qemu" 2>/dev/null
wait "$qemu"
qemu=
code "all is removed" 0 on_host "$work/storm" end
wait "$receiver"
equal "the receiver had nothing to complain about" "" "$(cat "$work/received")"
eventually "the pool is whole" vshmem check "cluster.$VSHMEM_CLUSTER"
vshmem down
clean_up
nothing_left "nothing is left of a machine that suspended itself"
export VSHMEM_CLUSTER=$cluster
