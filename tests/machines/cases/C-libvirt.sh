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
    # shellcheck disable=SC2016 # the inner shell expands it
    unshare --mount --propagation private bash -c '. "$MACHINES_ROOT/tests/machines/lib.sh"; . "$0"' \
        "${BASH_SOURCE[0]}"
    exit
fi

cluster=$VSHMEM_CLUSTER
export VSHMEM_CLUSTER=${cluster}l LIBVIRT_DEFAULT_URI=qemu:///system
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

for folder in /etc/libvirt /run/libvirt /var/lib/libvirt /var/log/libvirt /var/cache/libvirt; do
    mkdir -p "$folder"
    mount -t tmpfs tmpfs "$folder"
done
# It looks for the user that it would use if it were not told another one; the package that makes that one
# starts a daemon, too.
for file in passwd group; do
    getent "$file" libvirt-qemu >"$work/out" && continue
    cp "/etc/$file" "$work/$file"
    mount --bind "$work/$file" "/etc/$file"
done
getent passwd libvirt-qemu >"$work/out" ||
    echo 'libvirt-qemu:x:64055:64055::/nonexistent:/usr/sbin/nologin' >>/etc/passwd
getent group libvirt-qemu >"$work/out" || echo 'libvirt-qemu:x:64055:' >>/etc/group
printf '%s\n' 'user = "root"' 'group = "root"' 'security_driver = "none"' 'cgroup_controllers = []' \
    'stdio_handler = "file"' \
    'namespaces = []' >/etc/libvirt/qemu.conf
# Where no udev has given KVM to a group, machines that root has libvirt start could not use it.
if has_kvm; then
    mknod -m 666 /var/lib/libvirt/kvm c 10 232
    mount --bind /var/lib/libvirt/kvm /dev/kvm
fi
libvirtd >"$work/libvirtd.log" 2>&1 &
daemon=$!
eventually "libvirt answers" virsh -q list

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

# The machines of a file.
export VSHMEM_CLUSTER=${cluster}d
if ! LIMIT=300 vshmem up "$MACHINES_ROOT/examples/cluster/libvirt.toml" >"$work/up" 2>&1; then
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
code "one is given a pool of any place" 0 vshmem grant "$pool" node1
contains "libvirt knows of it" "-$name'" "$(virsh dumpxml "${node}1" | grep '<alias.*vshmem-pool')"
code "virsh ends one" 0 virsh -q destroy "${node}0"
contains "which is seen" died "$(vshmem ps | grep node0)"
code "it is repaired" 0 vshmem repair
equal "and libvirt lists it again" "${node}0" "$(virsh -q list --name | grep -x "${node}0")"
code "it takes commands" 0 vshmem exec node0 -- true
vshmem down
equal "nothing of them is left in libvirt" "" "$(virsh -q list --all --name | sed '/^$/d')"
equal "nor elsewhere" "" "$(find /run/vshmem-libvirt "/dev/shm/vshmem-"*-*-*-*-* 2>/dev/null)"
nothing_left "nothing is left of their cluster, and of the one before"

clean_up
daemon=
export VSHMEM_CLUSTER=$cluster
