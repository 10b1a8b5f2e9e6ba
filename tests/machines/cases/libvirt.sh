# shellcheck shell=bash
# shellcheck disable=SC2154 # lib.sh sets it
# A machine that libvirt runs is adopted; libvirt starts the machines of a file. libvirt is our own: a daemon
# in a mount namespace, with its folders on a tmpfs, so that the user's domains are neither seen nor touched.
# The domain boots what `vshmem up` boots, so that commands can be run in it.

if [ "$(id -u)" -ne 0 ] || ! command -v libvirtd >"$work/out" || ! command -v virsh >"$work/out"; then
    echo "skipped: a libvirt of our own needs root, libvirtd and virsh"
    exit 0
fi
if [ -z "${C_LIBVIRT_INSIDE:-}" ]; then
    export MACHINES_ROOT MACHINES_TARGET C_LIBVIRT_INSIDE=1
    # Bridges are in a network of our own, too.
    own=--mount
    unshare --net true 2>"$work/out" && own="--mount --net"
    export C_LIBVIRT_OWN=$own
    # shellcheck disable=SC2016,SC2086 # the inner shell expands it; words
    unshare $own --propagation private bash -c '. "$MACHINES_ROOT/tests/machines/lib.sh"; . "$0"' \
        "${BASH_SOURCE[0]}"
    exit
fi

cluster=$VSHMEM_CLUSTER
export VSHMEM_CLUSTER=${cluster}l
clusters=$XDG_RUNTIME_DIR/vshmem
domain=domain-$cluster
adopted=${cluster}v
pool=/dev/shm/libvirt-$cluster
name=${pool##*/}
daemon=
clean_up() {
    virsh -q destroy "$domain" >"$work/out" 2>&1 || true
    [ -z "$daemon" ] || { kill "$daemon" && wait "$daemon"; } 2>"$work/out" || true
    rm -rf "${clusters:?}/$adopted" "$clusters/$adopted.lock" "$work/"*.sock
    [ ! -e "$pool" ] || vshmem pool rm "$pool"
}
# This is a shell of its own.
trap clean_up EXIT

networks=
case $C_LIBVIRT_OWN in
*--net*)
    ip link set lo up
    ip link add vshbr0 type bridge
    ip addr add 10.99.0.1/24 dev vshbr0
    ip link set vshbr0 up
    networks='network = { private = true, bridge = "vshbr0", address = "10.99.0.10/24" }'
    ;;
*) echo "        Without name spaces of the network none is tried." ;;
esac
# shellcheck source=tests/lib/libvirt.sh
. "$MACHINES_ROOT/tests/lib/libvirt.sh"
own_libvirt

boot_one_for_its_files

# The example is what `virsh edit` makes of a domain without its parts for Vshmem with what --print says.
example=$work/example.xml
cp "$MACHINES_ROOT/examples/libvirt/domain.xml" "$example"
has_kvm || sed -i "s/<domain type='kvm'/<domain type='qemu'/; s/host-passthrough/maximum/" "$example"
/usr/bin/python3 "$programs/domain.py" without "$example" >"$work/plain.xml"
vshmem attach "$adopted" --libvirt db --print >"$work/parts.xml"
/usr/bin/python3 "$programs/domain.py" with "$work/plain.xml" "$work/parts.xml" >"$work/edited.xml"
for file in "$example" "$work/edited.xml"; do
    code "libvirt takes $(basename "$file")" 0 virsh -q define --validate "$file"
    virsh dumpxml db --inactive | grep -v '<uuid>\|<mac ' >"$work/$(basename "$file").dumped"
    virsh -q undefine db
done
equal "the example has what --print says" "" "$(diff "$work/example.xml.dumped" "$work/edited.xml.dumped")"
equal "its own devices take none of the ports" "" \
    "$(grep "type='pci' domain=.*bus='0x0*[1-9a-f]" "$work/example.xml.dumped")"

# It boots what our machines do, and has a disk of its own.
mkdir -m 700 "$clusters/$adopted" "$clusters/$adopted/vm0"
truncate -s 1M "$work/disk"
/usr/bin/python3 "$programs/domain.py" booting "$example" name="$domain" \
    emulator="$(command -v qemu-system-x86_64)" disk="$work/disk" \
    kernel="$(kernel_of_cluster)" initrd="$work/initramfs" console="$clusters/$adopted/vm0/console.log" \
    channel="$clusters/$adopted/vm0/channel0.sock" \
    cmdline="$(kernel_line "$adopted" 0)" \
    >"$work/domain.xml"
code "the domain is defined" 0 virsh -q define --validate "$work/domain.xml"
code "and starts the domain" 0 virsh -q start "$domain"
take_for_cluster "$adopted" "$(cat "/run/libvirt/qemu/$domain.pid")"
boots() { vshmem exec -c "$adopted" vm0 -- true; }
eventually "it boots" boots

code "a pool is made" 0 vshmem pool create "$pool" --size 64M
code "a domain that is none can't be attached" 125 vshmem attach other --libvirt "no-$domain"
code "the domain is attached" 0 vshmem attach "$adopted" --libvirt "$domain"
contains "vshmem ps shows it" running "$(vshmem ps | grep "(attached) *$adopted")"
told=$(vshmem grant "$pool" "$adopted" --json)
contains "it is granted a pool, and its front end says that it can be used" '"usable":true' "$told"
passed "that is: $told"
contains "libvirt knows of the device" "<shmem name='$name'" "$(virsh dumpxml "$domain")"

# With the domain, libvirt would save the pool as it is, and later write that over what others have in it.
code "libvirt does not save it" 1 virsh -q save "$domain" "$work/saved"
code "nor takes a snapshot" 1 virsh -q snapshot-create "$domain"
equal "and it runs on" running "$(virsh -q domstate "$domain" | xargs)"
on_host env VSHMEM_POOL="$pool" perl "$common/tell.pl" "to a domain"
equal "it hears the host" "to a domain" \
    "$(vshmem run -c "$adopted" -n 1 --no-prefix -e VSHMEM_POOL="$name" -- python3 "$common/hear.py" 2>&1)"

code "the pool is revoked" 0 vshmem revoke "$name" "$adopted"
equal "libvirt knows of no device any more" "" "$(virsh dumpxml "$domain" | grep "<shmem")"
equal "and it is out of sight in the machine" "" \
    "$(vshmem exec -c "$adopted" vm0 -- "$VSHMEM_BIN" pool ls | grep "$name")"
code "the domain is let go of" 0 vshmem detach "$adopted"
code "it runs on" 0 vshmem exec -c "$adopted" vm0 -- true
virsh -q destroy "$domain"
virsh -q undefine "$domain"
rm -rf "${clusters:?}/$adopted" "$clusters/$adopted.lock"
vshmem down

# What libvirt can't do is said with its place, before anything is started.
refused() { # refused NAME LINE SAID: what vshmem up says of the example with this line
    sed "s|^via.*|&\n$2|" "$MACHINES_ROOT/examples/cluster/libvirt.toml" >"$work/refused.toml"
    code "$1 is refused" 2 vshmem up "$work/refused.toml"
    contains "at its place" "$3" "$(cat "$work/out")"
}
refused "a network by sockets" 'network = { user = true }' ":5:20: by libvirt's network of this kind"
refused "memory that is never in large pages" 'pages = { machines = "small" }' ":5:22: libvirt can't keep"
sed 's/^\[\[machines.*/&\nvia = "libvirt"/' "$MACHINES_ROOT/examples/cluster/pair.toml" >"$work/refused.toml"
code "a machine by other means than the rest" 2 vshmem up "$work/refused.toml"
contains "is refused, with what to do" "All machines have the same via" "$(cat "$work/out")"

# The machines of a file. libvirt's QEMU opens what they see by its path, as a user without rights.
if [ "$(id -u)" -eq 0 ] &&
    ! setpriv --reuid 65000 --regid 65000 --clear-groups test -r "$MACHINES_TARGET"; then
    echo "skip    machines of a file by libvirt: other users can't enter $MACHINES_TARGET: chmod o+x above"
    return
fi
export VSHMEM_CLUSTER=${cluster}d
sed "s|^via.*|&\n$networks|" "$MACHINES_ROOT/examples/cluster/libvirt.toml" >"$work/libvirt.toml"
if ! LIMIT=300 vshmem up "$work/libvirt.toml" >"$work/up" 2>&1; then
    failed "libvirt starts the machines of a file" "$(cat "$work/up")"
    exit 1
fi
node=vshmem-$VSHMEM_CLUSTER-node
equal "libvirt starts the machines of a file, as its domains" "${node}0
${node}1" "$(virsh -q list --name --transient | sed '/^$/d')"
# Where they may run, as libvirt says.
pins=$(vshmem ps --json | field '*[" ".join(m["placement"]["vcpus"] + [m["placement"]["emulator"]])
    for m in told["clusters"][0]["machines"]]')
told=$(for number in 0 1; do
    virsh dumpxml "$node$number" | sed -n "s/.*<\(vcpu\|emulator\)pin .*cpuset='\([^']*\)'.*/\2/p"
done | xargs)
equal "libvirt has pinned them as they were placed" "$pins" "$told"
vshmem run --vm node0 --no-prefix -- perl "$common/tell.pl" "from a domain"
equal "messages go from one to the other" "from a domain" \
    "$(vshmem run --vm node1 --no-prefix -- /usr/bin/python3 "$common/hear.py" 2>&1)"
# What AppArmor would admit it to, by libvirt's own program.
helper=/usr/lib/libvirt/virt-aa-helper
if [ -x "$helper" ]; then
    mkdir -p /etc/apparmor.d
    mount -t tmpfs tmpfs /etc/apparmor.d
    mkdir /etc/apparmor.d/libvirt
    printf 'profile LIBVIRT_TEMPLATE {\n}\n' >/etc/apparmor.d/libvirt/TEMPLATE.qemu
    virsh dumpxml "${node}0" >"$work/node0.xml"
    uuid=$(virsh -q domuuid "${node}0" | xargs)
    confine() { "$helper" --dryrun --create --uuid "libvirt-$uuid" <"$work/node0.xml"; }
    code "libvirt makes a profile for AppArmor of one" 0 confine
    for part in "\"$(sed -n 's/.*<kernel>\(.*\)<.*/\1/p' "$work/node0.xml")\" r," \
        "\"/dev/shm/$(sed -n "s/.*<shmem name='\([^']*\)'.*/\1/p" "$work/node0.xml")\" rw," '"/usr/**" r,'; do
        contains "which admits it to ${part%,}" "$part" "$(cat "$work/out")"
    done
fi
reaches() { vshmem exec -u root "$1" -- busybox ping -c 1 -W 20 "$2"; }
if [ -n "$networks" ]; then
    code "one reaches the other by its name" 0 reaches node0 node1
    equal "on a network of libvirt, which this host is not on" "vshmem-$VSHMEM_CLUSTER 0" \
        "$(virsh -q net-list --name --transient | sed '/^$/d') $(ip -4 -o addr show dev virbr0 | wc -l)"
    code "this host reaches it in its bridge" 0 busybox ping -c 1 -W 20 10.99.0.11
    code "and it this host" 0 reaches node1 10.99.0.1
fi
code "one is given a pool of any place" 0 vshmem grant "$pool" node1
contains "libvirt knows of it" "-$name'" "$(virsh dumpxml "${node}1" | grep '<alias.*vshmem-pool')"
code "virsh ends one" 0 virsh -q destroy "${node}0"
contains "which is seen" died "$(vshmem ps | grep node0)"
code "it is repaired" 0 vshmem repair
equal "and libvirt lists it again" "${node}0" "$(virsh -q list --name | grep -x "${node}0")"
code "it takes commands" 0 vshmem exec node0 -- true
[ -z "$networks" ] || code "and is on the network again" 0 reaches node1 node0
vshmem down
equal "nothing of them is left in libvirt" "" "$(virsh -q list --all --name | sed '/^$/d')"
equal "nor elsewhere" "" "$(find /run/vshmem-libvirt "/dev/shm/vshmem-"*-*-*-*-* 2>/dev/null)"
equal "no network is, and no tap device" " 0" \
    "$(virsh -q net-list --all --name | sed '/^$/d') $(ip -o link show type tun 2>/dev/null | wc -l)"
nothing_left "nothing is left of their cluster, and of the one before"

# An image, which libvirt's QEMU opens as another user.
file=$work/libvirt-image.toml
image_of() { # image_of PATH: a cluster that boots it
    printf '%s\n' 'via = "libvirt"' "$networks" '[[machines]]' 'name = "cloud"' 'memory = "512M"' \
        "image = \"$1\"" '[pools.default]' 'size = "64M"' >"$file"
}
mkdir -m 700 "$work/hidden"
{ head -c 510 /dev/zero && printf '\125\252' && head -c 1000000 /dev/zero; } >"$work/hidden/empty.img"
image_of "$work/hidden/empty.img"
if command -v qemu-img >/dev/null; then
    code "an image that libvirt's QEMU can't read is an error" 125 vshmem up "$file"
    contains "that says what to do" "where libvirt's QEMU can read it" "$(cat "$work/out")"
    nothing_left "nothing is left of that"
fi
equal "nor a disk" "" "$(find "/var/tmp/vshmem-$(id -u)" -name "cloud.*" 2>/dev/null)"
if [ -n "${MACHINES_FULL:-}" ]; then
    made=$("$MACHINES_ROOT/tests/machines/image.sh")
    cp "$made.qcow2" "$work/image.qcow2"
    chmod 644 "$work/image.qcow2"
    before="$(stat -c '%u %a' "$work/image.qcow2") $(sha256sum <"$work/image.qcow2")"
    image_of "$work/image.qcow2"
    if ! LIMIT=700 vshmem up "$file" --timeout 600 >"$work/up" 2>&1; then
        failed "libvirt starts a machine with an image" "$(cat "$work/up")"
        exit 1
    fi
    inside() { vshmem exec -u root cloud -- "$@"; }
    equal "libvirt starts a machine with an image" "cloud /dev/vda1" \
        "$(inside hostname) $(inside findmnt -n -o SOURCE /)"
    WITHIN=120 eventually "cloud-init is done" inside cloud-init status --wait
    # shellcheck disable=SC2016 # perl expands it
    vshmem run --vm cloud --no-prefix -- perl -e \
        'msgsnd(msgget(0x5151, 01600) // die, pack("l! a*", 1, "from an image"), 0) or die'
    # shellcheck disable=SC2016 # perl expands it
    equal "it is on the pool" "from an image" "$(on_host perl -e \
        'msgrcv(msgget(0x5151, 01600) // die, my $m, 99, 0, 0) or die; print substr($m, 8)')"
    [ -z "$networks" ] || code "and in the bridge, by cloud-init" 0 busybox ping -c 1 -W 20 10.99.0.10
    inside sh -c 'date >/root/kept; sync'
    LIMIT=400 code "it is restarted" 0 vshmem restart cloud --timeout 300
    holds "with what it wrote" inside test -s /root/kept
    [ -z "$networks" ] || code "and its address" 0 busybox ping -c 1 -W 20 10.99.0.10
    vshmem down
    equal "nothing of it is left in libvirt" "" "$(virsh -q list --all --name | sed '/^$/d')"
    equal "the image is as it was, and its owner's" "$before" \
        "$(stat -c '%u %a' "$work/image.qcow2") $(sha256sum <"$work/image.qcow2")"
    nothing_left "nothing is left of a machine with an image"
fi

clean_up
daemon=
export VSHMEM_CLUSTER=$cluster
