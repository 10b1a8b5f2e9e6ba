# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # who sources it sets work, and ends daemon
# own_libvirt: starts a libvirt of our own, $daemon, with its folders on a tmpfs, so that the user's domains
# are neither seen nor touched. The caller is root, and in a mount namespace of its own.
own_libvirt() {
    local folder file
    export LIBVIRT_DEFAULT_URI=qemu:///system
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
    if [ -e /dev/kvm ] && mknod -m 666 /var/lib/libvirt/kvm c 10 232; then
        mount --bind /var/lib/libvirt/kvm /dev/kvm
    fi
    libvirtd >"$work/libvirtd.log" 2>&1 &
    daemon=$!
    eventually "libvirt answers" virsh -q list
}
