# shellcheck shell=bash
# shellcheck disable=SC2016,SC2154 # other shells expand what is quoted; lib.sh sets work
# Machines that are given their pool as persistent memory, of which their kernels make a DAX device: the
# transport dax.
need_helpers
vshmem down --all

code "doorbells can't be had with it" 2 vshmem up -n 1 --transport dax --doorbell
contains "and it is said so" "by dax machines can't wake each other's waiters" "$(cat "$work/out")"
LIMIT=300 vshmem up -n 2 --transport dax --pool-size 64M >"$work/up" 2>&1
equal "two machines come up" 0 $?
contains "up says how they have the pool" "by dax: it is cached, and waiters look every 2 ms" \
    "$(cat "$work/up")"
equal "a machine has it as a device of its own kernel's making" "64M cached, poll /dev/dax0.0" \
    "$(vshmem exec vm1 -- "$VSHMEM_BIN" pool ls | awk '$1 == "default" { print $2, $5, $6, $7 }')"

# Moved, it would have the pool as it was, and write that over what others have.
contains "QEMU refuses to move it, whatever it has mounted" "peer mode" "$(monitor vm0 query-migrate)"
equal "by a device that it does not see" "" \
    "$(vshmem exec vm0 -- sh -c 'grep -l 0x1110 /sys/bus/pci/devices/*/device')"

vshmem exec -u root vm0 -- "$MACHINES_TARGET/release/transport-contract" default >"$work/contract" 2>&1
equal "the transport keeps its contract" 0 $?
contains "and it is this one" "transport dax" "$(cat "$work/contract")"
grep -v '^ok' "$work/contract" | sed 's/^/        /'

# A wait, a hand-over and an end in each direction, and the host's own processes take part.
vshmem run --vm vm0 --no-prefix -- perl -e \
    'semop(semget(0x5151, 2, 01600) // die, pack("s!3", 0, 1, 0)) or die'
vshmem run --vm vm0 --no-prefix -- perl "$programs/count.pl" 0 >"$work/first" 2>&1 &
first=$!
code "a machine and the host take turns" 0 on_host perl "$programs/count.pl" 1
code "and so does the machine" 0 wait "$first"
vshmem run --vm vm0 --no-prefix -- perl "$programs/count.pl" 0 >"$work/first" 2>&1 &
first=$!
code "two machines take turns" 0 vshmem run --vm vm1 --no-prefix -- perl "$programs/count.pl" 1
code "both of them" 0 wait "$first"
equal "and no turn is lost" 800 \
    "$(on_host perl -e 'shmread(shmget(0x5151, 0, 0) // die, my $n, 0, 8) or die; print unpack("q", $n)')"

# A machine that dies with a semaphore in its hand.
vshmem run --vm vm1 --no-prefix -- perl "$programs/mutex.pl" >/dev/null 2>&1 &
held() { on_host perl -e 'exit(semctl(semget(0x5252, 0, 0) // exit(1), 0, 12, 0) + 0)'; }
eventually "a machine holds a semaphore" held
kill -KILL "$(vshmem ps --json | /usr/bin/python3 -c '
import json, sys
print(*[m["pid"] for c in json.load(sys.stdin)["clusters"] for m in c["machines"] if m["name"] == "vm1"])')"
LIMIT=300 code "it is started anew when it has died" 0 vshmem restart vm1
LIMIT=20 code "and what it held was undone" 0 vshmem run --vm vm0 --no-prefix -- \
    perl -e 'semop(semget(0x5252, 0, 0) // die, pack("s!3", 0, -1, 0)) or die'

# The block before the pool is a liar's to write: it says that kernels keep their records of pages in the pool
# itself (mode 2), which a kernel is told not to believe.
patch() { # patch FILE OFFSET VALUE: a word of the block, and its checksum
    /usr/bin/python3 "$programs/block.py" "$@"
}
pool=/dev/shm/vshmem.$(id -u)/cluster.$VSHMEM_CLUSTER
patch "$pool" 72 2
code "a machine does not start on a block that lies" 125 vshmem restart vm1 --timeout $((60 * slow))
contains "and says why" "DAX" "$(cat "$work/out")"
dd if=/dev/urandom of="$pool" bs=4096 seek=1 count=1 conv=notrunc 2>/dev/null
LIMIT=300 code "it does where there is none, and makes one" 0 vshmem restart vm1
code "the pool is what it was" 0 vshmem run --vm vm1 --no-prefix -- perl -e 'semget(0x5252, 0, 0) // die'
code "and whole" 0 vshmem check "cluster.$VSHMEM_CLUSTER"

# A further one, while it runs. Its device is mapped in multiples of 2 MiB, and the host has it in pages.
large=large-$VSHMEM_CLUSTER
on_large() { LD_PRELOAD=$VSHMEM_LIB VSHMEM_POOL=$large "$@"; }
vshmem pool create "$large" --size 512M --dax --align 2M --limit shmmni=150
code "a pool is granted as a DAX device" 0 vshmem grant "$large" vm1
contains "which the machine's kernel makes" "$large 512M 512M 600 cached, poll /dev/dax1.0" \
    "$(vshmem exec vm1 -- "$VSHMEM_BIN" pool ls | tr -s ' ')"
vshmem exec -u root vm1 -- "$MACHINES_TARGET/release/transport-contract" "$large" >"$work/contract" 2>&1
equal "the transport keeps its contract in large pages" 0 $?
grep -v '^ok' "$work/contract" | sed 's/^/        /'
LIMIT=300 code "System V's conformance tests pass there" 0 vshmem exec -u root vm1 -- \
    env TESTS="${MACHINES_FULL:+sem msg }shm" POOL=/dev/dax1.0 SHMLBA=2097152 \
    "$MACHINES_ROOT/tests/conformance/run.sh" "$VSHMEM_LIB"
grep '^FAIL' "$work/out" | sed 's/^/        /'
has_no_segments() {
    [ "$(vshmem ipcs --pool "$1" --json | field 'told["pools"][0]["segments"]')" = "[]" ]
}
eventually "what they have left is freed" has_no_segments "$large"
on_large perl -e 'shmwrite(shmget($_, 5000, 01600) // die, "by $_", 0, 8) || die for 1 .. 3'
code "segments that the host has made" 0 vshmem run --vm vm1 -e VSHMEM_POOL="$large" --no-prefix -- \
    perl -e 'my $text;
             shmread(shmget($_, 0, 0) // die, $text, 0, 4) && $text eq "by $_" or die "$_: $!" for 1 .. 3;
             shmwrite(shmget(4, 5000, 01600) // die, "by 4", 0, 8) or die'
equal "and those that a machine has made can be attached by either" "by 4" \
    "$(on_large perl -e 'shmread(shmget(4, 0, 0) // die, my $text, 0, 4) or die; print $text')"
contains "what they take is told" "(each takes a multiple of 2M: 8M in all, of which 19.5K were asked for)" \
    "$(vshmem ipcs --pool "$large")"
code "it can't be taken away" 125 vshmem revoke "$large" vm1
contains "since QEMU can't" "by dax, and QEMU can't take such a device away" "$(cat "$work/out")"
LIMIT=300 code "it goes when the machine starts anew" 0 vshmem restart vm1
code "and can be granted again" 0 vshmem grant "$large" vm1
equal "with all that is in it" "by 4" "$(vshmem run --vm vm1 -e VSHMEM_POOL="$large" --no-prefix -- \
    perl -e 'shmread(shmget(4, 0, 0) // die, my $text, 0, 4) or die; print $text')"

# Segments of a pool that was not made for large pages can't be attached where there is nothing else; the rest
# works.
plain=plain-$VSHMEM_CLUSTER
vshmem pool create "$plain" --size 64M --dax
patch "/dev/shm/vshmem.$(id -u)/$plain" 84 $((2 << 20))
code "a pool for pages is granted as a device of large ones" 0 vshmem grant "$plain" vm0
code "its segments can't be attached" 0 vshmem run --vm vm0 -e VSHMEM_POOL="$plain" -e VSHMEM_LOG=error \
    --no-prefix -- perl -e 'my $id = shmget(1, 1, 01600) // die;
                            !shmread($id, my $text, 0, 1) && $!{EINVAL} or die'
contains "and it is said what to do" "vshmem pool create --align 2048K" "$(cat "$work/out")"
code "semaphores work" 0 vshmem run --vm vm0 -e VSHMEM_POOL="$plain" --no-prefix -- \
    perl -e 'semop(semget(1, 1, 01600) // die, pack("s!3", 0, 1, 0)) or die'

# A pool is made of the device itself.
on_device() { vshmem exec -u root vm0 -- "$VSHMEM_BIN" pool create /dev/dax1.0 "$@"; }
code "a pool is not made anew of a device" 1 on_device
contains "that has one already" "it does not begin with zeros" "$(cat "$work/out")"
dd if=/dev/zero of="/dev/shm/vshmem.$(id -u)/$plain" bs=4096 seek=512 count=1 conv=notrunc 2>/dev/null
code "of a length that it does not have" 2 on_device --size 1M
code "but of one that begins with zeros" 0 on_device --limit shmmni=7
code "its segments can be attached" 0 vshmem exec -u root vm0 -- env LD_PRELOAD="$VSHMEM_LIB" \
    VSHMEM_POOL=/dev/dax1.0 perl -e 'my $id = shmget(1, 9, 01600) // die;
                                     shmwrite($id, "new", 0, 3) && shmread($id, my $text, 0, 4) or die $!;
                                     $text eq "new\0" or die $text'

# A file on a file system that has its files in persistent memory: a pool in pages, of one kernel.
files=files-$VSHMEM_CLUSTER
vshmem pool create "$files" --size 256M --dax
code "persistent memory for files" 0 vshmem grant "$files" vm0
if kernel=$("$MACHINES_ROOT/kmod/build.sh" --image "$(vshmem exec vm0 -- uname -r)"); then
    device=$(vshmem exec vm0 -- "$VSHMEM_BIN" pool ls | awk -v name="$files" '$1 == name { print $NF }')
    # The block there would have the kernel make a DAX device again.
    dd if=/dev/zero of="/dev/shm/vshmem.$(id -u)/$files" bs=1M count=3 conv=notrunc 2>/dev/null
    {
        echo "set -e"
        kernel_modules "$kernel" "$work" nd_btt nd_pmem crc16 crc32c_generic mbcache jbd2 ext4
        cat "$programs/file_system.sh"
    } >"$work/files"
    code "has a file system with dax" 0 vshmem exec -u root vm0 -- sh "$work/files" "${device##*/dax}"
    contains "which the kernel confirms" " ext4 rw,relatime,dax=always" "$(cat "$work/out")"
    code "a pool is made there" 0 vshmem exec -u root vm0 -- \
        "$VSHMEM_BIN" pool create /run/files/pool --size 128M
    LIMIT=300 code "System V's conformance tests pass in it" 0 vshmem exec -u root vm0 -- \
        env TESTS="${MACHINES_FULL:+sem msg }shm" POOL=/run/files/pool \
        "$MACHINES_ROOT/tests/conformance/run.sh" "$VSHMEM_LIB"
else
    echo "skip  a file system with dax: the kernel's modules can't be had"
fi

# Another pool beside them, by ivshmem, comes and goes.
vshmem pool create "beside-$VSHMEM_CLUSTER" --size 1M
code "another pool is granted to it" 0 vshmem grant "beside-$VSHMEM_CLUSTER" vm1
contains "which it has besides" "beside-$VSHMEM_CLUSTER" "$(vshmem exec vm1 -- "$VSHMEM_BIN" pool ls)"
code "and taken away" 0 vshmem revoke "beside-$VSHMEM_CLUSTER" vm1
code "its own can't be" 125 vshmem revoke default vm1
contains "since QEMU can't" "can't take such a device away" "$(cat "$work/out")"
vshmem down

LIMIT=300 vshmem up -n 1 >"$work/up" 2>&1
code "a machine without room for persistent memory is given none" 125 vshmem grant "$plain" vm0
contains "and it is said what it lacks" "vshmem up --transport dax" "$(cat "$work/out")"
vshmem down
vshmem pool rm "beside-$VSHMEM_CLUSTER" "$large" "$plain" "$files"
