# shellcheck shell=bash
# shellcheck disable=SC2016,SC2154 # other shells expand what is quoted; lib.sh sets it
# A machine that QEMU runs on its own is adopted. It boots what `vshmem up` boots, so that commands can be run
# in it.

cluster=$VSHMEM_CLUSTER
export VSHMEM_CLUSTER=${cluster}s
clusters=$XDG_RUNTIME_DIR/vshmem
plain=${cluster}p
pool=attach-$plain
qemu=
not_there() { ! kill -0 "$1"; }
clean_up() {
    [ -z "$qemu" ] || kill -KILL "$qemu" 2>/dev/null || true
    rm -rf "${clusters:?}/$plain" "$clusters/$plain.lock" "$XDG_RUNTIME_DIR/$plain"[.-]*
    [ ! -e "/dev/shm/vshmem.$(id -u)/$pool" ] || vshmem pool rm "$pool"
}

boot_one_for_its_files

# A machine like it, in no cluster, by the example. That it is one, for `vshmem exec`, is said to the command
# by hand.
mkdir -m 700 "$clusters/$plain" "$clusters/$plain/vm0"
parameters=$(kernel_line plain "$(id -u)")
guest() {
    PATH=$(dirname "$VSHMEM_BIN"):$PATH ACCEL=$(accel_options) PORTS="--spare-pools 2 --largest-pool 64M" \
        WAIT=$((60 * slow)) \
        "$MACHINES_ROOT/examples/qemu/guest.sh" "$plain" "$pool" -nodefaults -no-user-config -no-reboot \
        -smp 1,maxcpus=2 -m 512 \
        -kernel "$(kernel_of_cluster)" -initrd "$work/initramfs" -append "$parameters" \
        -serial "file:$clusters/$plain/vm0/console.log" \
        -fsdev local,id=root,path=/,security_model=none,readonly=on,multidevs=remap \
        -device virtio-9p-pci,fsdev=root,mount_tag=root \
        -chardev "socket,id=c0,path=$clusters/$plain/vm0/channel0.sock,server=on,wait=off" \
        -device virtserialport,nr=5,chardev=c0,name=vshmem.0
}
said=$(guest 2>&1)
contains "examples/qemu/guest.sh starts a guest that has a pool" "$plain can use the pool $pool" "$said"
qemu=$(cat "$XDG_RUNTIME_DIR/$plain.pid")
take_for_cluster "$plain" "$qemu"
boots() { vshmem exec -c "$plain" vm0 -- true; }
eventually "it boots" boots
contains "it has it" "$pool" "$(vshmem exec -c "$plain" vm0 -- "$VSHMEM_BIN" pool ls)"
code "the pool is taken from it, as the example says" 0 vshmem revoke "$pool" "$plain"
code "and it is let go of" 0 vshmem detach "$plain"

code "a socket that is none can't be attached" 125 vshmem attach "$plain" --qmp "$work/initramfs"
code "nor can a name of another machine" 2 vshmem attach vm0 --qmp "$XDG_RUNTIME_DIR/$plain.qmp"
code "the machine is attached" 0 vshmem attach "$plain" --qmp "$XDG_RUNTIME_DIR/$plain.qmp"
if has_kvm; then
    contains "it is said that its waiters are woken" "that it is granted wake its waiters" \
        "$(cat "$work/out")"
else
    contains "it is said that without KVM it has no doorbells" \
        "don't wake its waiters, which look every 2 ms: its QEMU runs without KVM" "$(cat "$work/out")"
fi
code "to do it twice is no failure" 0 vshmem attach "$plain" --qmp "$XDG_RUNTIME_DIR/$plain.qmp"
contains "vshmem ps shows it" running "$(vshmem ps | grep "(attached) *$plain")"

told=$(vshmem grant "$pool" "$plain" --json)
contains "it is granted a pool, and its front end says that it can be used" '"usable":true' "$told"
passed "that is: $told"
contains "another machine is granted it" "vm0 can use" "$(vshmem grant "$pool" vm0)"
code "vshmem ps shows the pool" 0 sh -c "'$VSHMEM_BIN' ps | grep '(attached) *$plain.*$pool'"

vshmem run --vm vm0 -n 1 --no-prefix -e VSHMEM_POOL="$pool" -- perl "$common/tell.pl" \
    "to a machine of its own"
equal "it hears the other machine" "to a machine of its own" \
    "$(vshmem run -c "$plain" -n 1 --no-prefix -e VSHMEM_POOL="$pool" -- python3 "$common/hear.py" 2>&1)"

code "it can't be let go of while it has a pool" 125 vshmem detach "$plain"
contains "it lists it" "$pool" "$(vshmem exec -c "$plain" vm0 -- "$VSHMEM_BIN" pool ls)"
code "the pool is revoked" 0 vshmem revoke "$pool" "$plain"
equal "and out of sight" "" "$(vshmem exec -c "$plain" vm0 -- "$VSHMEM_BIN" pool ls | grep "$pool")"
code "the machine is let go of" 0 vshmem detach "$plain"
code "it runs on" 0 vshmem exec -c "$plain" vm0 -- true
code "it is known no more" 125 vshmem grant "$pool" "$plain"

# As the guide says it, but for the names, and what is typed in the machine.
blocks_of "$MACHINES_ROOT/docs/guide-existing-machines.md" "What the machine needs" "$work/needs"
blocks_of "$MACHINES_ROOT/docs/guide-existing-machines.md" "Plain QEMU" "$work/plain"
made=attach-$plain-made
names="s|/run/db/qmp.sock|$XDG_RUNTIME_DIR/$plain.qmp|; s/\\bdb\\b/$plain/g; s/\\bwork\\b/$made/g"
here=$PWD path=$PATH
as_user_in of-guide
types "$work/needs/1.sh" "$names"
types "$work/plain/1.sh" "$names"
contains "which shows the pool" "$made" "$(grep '(attached)' "$work/out")"
program="perl -e 'msgget(0x77, 01600) // die'"
inside="s|libvshmem.so.1|$VSHMEM_LIB|; s|^vshmem|$VSHMEM_BIN|; s|\\./a.out|$program|"
sed "$names; $inside" "$work/plain/2.sh" >"$work/inside"
while IFS= read -r line; do
    line=$(typed "$line")
    code "in the machine: $line" 0 vshmem exec -c "$plain" vm0 -- sh -c "$line" </dev/null
done <"$work/inside"
types "$work/plain/3.sh" "$names"
command vshmem pool rm "$made"
cd "$here" && PATH=$path || exit 1
unset LD_LIBRARY_PATH

# It may end without a word.
code "it is attached again" 0 vshmem attach "$plain" --qmp "$XDG_RUNTIME_DIR/$plain.qmp"
code "and granted the pool" 0 vshmem grant "$pool" "$plain"
# Its own name is another one: it is known by what its front end has said.
equal "it calls itself otherwise" plain "$(vshmem exec -c "$plain" vm0 -- hostname)"
vshmem exec -c "$plain" vm0 -- env VSHMEM_POOL="$pool" LD_PRELOAD="$VSHMEM_LIB" perl "$common/hold.pl" 0x78 \
    1 \
    >"$work/held" &
holder=$!
eventually "a program in it holds a semaphore" grep -q held "$work/held"
semaphore_is() { [ "$(on_host env VSHMEM_POOL="$pool" perl "$common/value.pl" 0x78)" = "$1" ]; }
code "as the host sees" 0 semaphore_is 1
kill -KILL "$qemu"
wait "$holder"
eventually "QEMU is gone" not_there "$qemu"
qemu=
contains "vshmem ps shows that it is off" off "$(vshmem ps | grep "(attached) *$plain")"
code "one that is off can be let go of" 0 vshmem detach "$plain"
eventually "what its program held is undone" semaphore_is 0
rm -rf "${clusters:?}/$plain" "$clusters/$plain.lock" "$XDG_RUNTIME_DIR/$plain"[.-]*
vshmem down
code "who is not attached is not detached" 1 vshmem detach nosuch
nothing_left "nothing is left of it"
clean_up
export VSHMEM_CLUSTER=$cluster
