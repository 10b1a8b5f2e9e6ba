# shellcheck shell=bash
# shellcheck disable=SC2016,SC2154 # perl expands what is quoted; lib.sh sets it
# Machines that boot a disk image with cloud-init, as Debian's and Ubuntu's cloud images do: by its boot
# loader, and by a kernel that is named.

cluster=$VSHMEM_CLUSTER
vshmem down >/dev/null 2>&1
export VSHMEM_CLUSTER=${cluster}i
file=$work/image.toml
disks=/var/tmp/vshmem-$(id -u)
no_disks() { find "$disks" -name "*.qcow2" -path "*vm.*" 2>/dev/null; }

# What can't be booted is told before anything is started.
example() { # example IMAGE: the example with that image
    sed "s|\"debian/12\"|\"$1\"|" "$MACHINES_ROOT/examples/cluster/cloud-image.toml" >"$file"
}
example "$work/missing.qcow2"
code "an image that isn't there starts nothing" 125 vshmem up "$file"
contains "which is said" "cloud can't boot $work/missing.qcow2: could not open" "$(cat "$work/out")"
head -c 4096 /dev/zero >"$work/zero.qcow2"
example "$work/zero.qcow2"
code "nor does one that is none" 125 vshmem up "$file"
contains "which is said, too" "neither a qcow2 image nor a disk that can be booted" "$(cat "$work/out")"
{ head -c 510 /dev/zero && printf '\125\252' && head -c 1000000 /dev/zero; } >"$work/empty.img"
example "$work/empty.img"
mkdir -p "$work/only"
ln -sf "$(command -v qemu-system-x86_64)" "$work/only"
PATH=$work/only code "without qemu-img there are no disks" 125 "$VSHMEM_BIN" up "$file"
contains "which is said with its package" qemu-utils "$(cat "$work/out")"
if ! command -v qemu-img >/dev/null; then
    echo "        There is no qemu-img: nothing else is tested."
    export VSHMEM_CLUSTER=$cluster
    exit 0
fi
# Alone, for of several that are too late, any may be named.
sed -i '/^\[\[machines\]\]$/{N;/"plain"/{N;d}}' "$file"
code "an image without a system does not come up" 125 vshmem up "$file" --timeout 4
contains "which is said with what it needs" "needs systemd and cloud-init" "$(cat "$work/out")"
nothing_left "nothing is left of that"
equal "and no disk" "" "$(no_disks)"

if [ -z "${MACHINES_FULL:-}" ]; then
    echo "        Images are booted with MACHINES_FULL=1 (make soak)."
    export VSHMEM_CLUSTER=$cluster
    exit 0
fi

# A system that is its initramfs, without an image: busybox, the C library, and some of its kernel's modules.
version=$("$MACHINES_ROOT/kmod/build.sh" --newest 6.1)
kernel=$("$MACHINES_ROOT/kmod/build.sh" --image "$version")
"$MACHINES_ROOT/kmod/build.sh" "$version" >"$work/out" 2>&1 ||
    failed "there is a driver for the kernel" "$(cat "$work/out")"
tree=$work/tree modules=lib/modules/$version
mkdir -p "$tree/bin" "$tree/$modules"
cp "$(command -v busybox)" "$tree/bin/busybox"
cp "$programs/own_system.sh" "$tree/init"
(cd "$(dirname "$kernel")/../$modules" && find . -name 'modules.*' -o -path '*/drivers/virtio/*' -o \
    -path '*/drivers/block/virtio_blk*' -o -path '*/drivers/char/virtio_console*' -o -path '*/fs/fat/*' \
    -o -name 'nls_cp437*' -o -name 'nls_ascii*' | cpio --quiet -pd "$tree/$modules")
busybox depmod -b "$tree" "$version"
ldd "$VSHMEM_BIN" "$VSHMEM_LIB" | grep -o '/[^ ]*\.so[^ :]* (' | tr -d '( ' | sort -u |
    cpio --quiet -pdL "$tree"
(cd "$tree" && find . | cpio --quiet -o -H newc) >"$work/own.cpio"
cat >"$file" <<TOML
[[machines]]
name = "own"
memory = "256M"
kernel = "$kernel"
initramfs = "$work/own.cpio"
[[machines]]
name = "plain"
memory = "256M"
TOML
LIMIT=300 code "a machine comes up that is only an initramfs" 0 vshmem up "$file" --timeout 250
equal "it is called so, and has its own kernel" "own $version" "$(vshmem exec own -- uname -nr)"
equal "its pool, with its driver" "default /dev/vshmem0" "$(vshmem exec own -- sh -c "
    $VSHMEM_BIN ipcs --json | sed -n 's/.*\"pool\": *\"\([a-z]*\)\".*/\1/p'; ls /dev/vshmem0" | xargs)"
vshmem run --vm plain -- perl -e 'msgget(0x5252, 01600) // die'
contains "in which is what others make" 0x00005252 "$(vshmem exec own -- "$VSHMEM_BIN" ipcs)"
LIMIT=300 code "it is restarted" 0 vshmem restart own --timeout 250
contains "and is in the pool again" 0x00005252 "$(vshmem exec own -- "$VSHMEM_BIN" ipcs)"
vshmem down
nothing_left "nothing is left of it"

image=$("$MACHINES_ROOT/tests/machines/image.sh")
# The driver for the image's kernel, which is another one than that of the other machines.
"$MACHINES_ROOT/kmod/build.sh" "$(cat "$image.version")" >"$work/out" 2>&1 ||
    failed "there is a driver for the image's kernel" "$(cat "$work/out")"
before=$(sha256sum <"$image.qcow2")
# By its name, as a site with images of its own has it.
export VSHMEM_IMAGES=$work/images.toml
cat >"$VSHMEM_IMAGES" <<TOML
["debian/12"]
address = "file:$image.qcow2#sha256=${before%% *}"
TOML
example debian/12
cat >>"$file" <<TOML
[[machines]]
name = "direct"
memory = "512M"
image = "$image.qcow2"
kernel = "$image.vmlinuz"
initramfs = "$image.initrd"
parameters = "root=/dev/vda1 ro"
TOML
begun=$SECONDS
if ! LIMIT=700 vshmem up "$file" --timeout 600 >"$work/up" 2>&1; then
    failed "machines boot an image" "$(cat "$work/up")"
    exit 1
fi
passed "machines boot an image, in $((SECONDS - begun)) s"
inside() { vshmem exec -u root "$@"; }
for machine in cloud direct; do
    equal "$machine is called so" "$machine" "$(inside "$machine" -- hostname)"
    contains "it has its own kernel" cloud-amd64 "$(inside "$machine" -- uname -r)"
    equal "and its own root" /dev/vda1 "$(inside "$machine" -- findmnt -n -o SOURCE /)"
done
equal "one that a boot loader loads, or one that is named" "0 1" "$(for machine in cloud direct; do
    inside "$machine" -- grep -c 'pci=no_e820' /proc/cmdline; done | paste -s -d ' ')"
equal "the pool is called as everywhere" "default default default" "$(for machine in cloud direct plain; do
    vshmem exec "$machine" -- "$VSHMEM_BIN" ipcs --json | field '" ".join(p["pool"] for p in told["pools"])'
done | paste -s -d ' ')"
equal "the driver is loaded" "True True" "$(for machine in cloud direct; do
    inside "$machine" -- test -e /dev/vshmem0 && echo True; done | paste -s -d ' ')"
WITHIN=120 eventually "cloud-init is done" inside cloud -- cloud-init status --wait
equal "they are on the network, by name" "plain" "$(inside cloud -- /usr/bin/python3 -c '
import socket
server = socket.create_server(("0.0.0.0", 7777))
print(socket.gethostbyaddr(server.accept()[1][0])[0])' & sleep 3
    vshmem exec plain -- /usr/bin/python3 -c 'import socket, time
for _ in range(100):
    try:
        socket.create_connection(("cloud", 7777))
        break
    except OSError:
        time.sleep(0.2)'; wait)"

# A program that knows nothing of Vshmem, in one machine of each kind.
send='msgsnd(msgget(0x5151, 01600) // die, pack("l! a*", 1, "from $ARGV[0]"), 0) or die'
receive='msgrcv(msgget(0x5151, 01600) // die, my $m, 99, 0, 0) or die; print substr($m, 8), "\n"'
for pair in plain:cloud cloud:direct direct:plain; do
    equal "${pair%:*} sends to ${pair#*:}, which waits" "${pair#*:}: from ${pair%:*}" \
        "$(vshmem run --vm "${pair#*:}" -- perl -e "$receive" : --vm "${pair%:*}" -- \
            perl -e "sleep 1; $send" "${pair%:*}" 2>&1)"
done
equal "and this host to them" "from host" "$(vshmem run --no-prefix --vm cloud -- perl -e "$receive" &
    on_host perl -e "$send" host; wait)"
vshmem pool create "$VSHMEM_CLUSTER-later" --size 4M
vshmem grant "$VSHMEM_CLUSTER-later" cloud >"$work/out" 2>&1 || cat "$work/out"
contains "a pool can be granted" "$VSHMEM_CLUSTER-later" "$(vshmem exec cloud -- "$VSHMEM_BIN" pool ls)"
vshmem revoke "$VSHMEM_CLUSTER-later" cloud >"$work/out" 2>&1 || failed "and revoked" "$(cat "$work/out")"
vshmem pool rm "$VSHMEM_CLUSTER-later"

# The disk outlives a restart, and nothing outlives the cluster.
inside cloud -- sh -c 'date >/root/kept; sync'
boot=$(inside cloud -- cat /proc/sys/kernel/random/boot_id)
LIMIT=400 code "a machine is restarted" 0 vshmem restart cloud --timeout 300
holds "it has booted again" test "$boot" != "$(inside cloud -- cat /proc/sys/kernel/random/boot_id)"
holds "what it wrote is there" inside cloud -- test -s /root/kept
equal "and it is on the pool again" "cloud: from plain" "$(vshmem run --vm cloud -- perl -e "$receive" \
    : --vm plain -- perl -e "$send" plain 2>&1)"
sed "0,/^image/s|^image.*|image = \"$work/empty.img\"|" "$file" >"$work/other.toml"
code "another image is a change" 0 vshmem up "$work/other.toml" --dry-run
equal "that takes another cluster" \
    "rebuild  cloud: it boots $work/empty.img instead of $image.qcow2" "$(cat "$work/out")"
vshmem down
nothing_left "nothing is left of machines with an image"
equal "and none of their disks" "" "$(no_disks)"
equal "the image is as it was" "$before" "$(sha256sum <"$image.qcow2")"
export VSHMEM_CLUSTER=$cluster
