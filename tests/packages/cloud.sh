# shellcheck shell=sh
# shellcheck disable=SC2034,SC2154 # for run.sh, which sets root, target and work
# examples/cloud-init, with the packages: cloud-init takes it, and a guest that starts with it has a service
# that uses a pool of the host.

# What a cloud image has that matters here. The kernel's headers are there: a guest in a test has no network.
CLOUD=systemd-sysv,udev,cloud-init,e2fsprogs,iproute2,openssh-server,sudo,perl,initramfs-tools,dkms
CLOUD=$CLOUD,linux-image-cloud-amd64,linux-headers-cloud-amd64

# It stays unpacked in $work/system.
cloud_takes() { # cloud_takes ARCHIVE
    inside "$1" "$here/schema.sh" "$root/examples/cloud-init/user-data"
}

cloud_boots() (
    pools=$(mktemp -d /dev/shm/vshmem-packages.XXXXXX)
    mkdir -m 700 "$work/run"
    export XDG_RUNTIME_DIR="$work/run" PATH="$target/release:$PATH"
    ended() {
        [ ! -e "$work/run/cloud.pid" ] || kill "$(cat "$work/run/cloud.pid")"
        rm -rf "$pools"
    }
    trap ended EXIT

    "${CC:-cc}" -O2 "$root/examples/boss.c" -o "$work/boss"
    mkdir "$work/seed"
    cp "$root"/examples/cloud-init/*-data "$root/examples/worker.pl" "$target"/deb/*.deb "$work/seed"
    # What the user's commands say is to be seen here, too.
    printf '#cloud-config\noutput: {all: ">/dev/console"}\n' >"$work/seed/vendor-data"
    # The files' owners are those of the name space.
    # shellcheck disable=SC2016 # for the inner shell
    as_root -- sh -c 'cp "$1"/boot/vmlinuz-* "$2/vmlinuz" && cp "$1"/boot/initrd.img-* "$2/initrd" &&
        mke2fs -q -t ext4 -d "$1" "$2/disk" 3G' sh "$work/system" "$work"

    vshmem pool create "$pools/work" --size 64M
    # Most of it is DKMS, which compiles two drivers in an emulated machine.
    ACCEL="-accel tcg,thread=multi -cpu max,la57=off" PORTS="--spare-pools 2 --largest-pool 64M" WAIT=1200 \
        "$root/examples/qemu/guest.sh" cloud "$pools/work" -m 1500M -smp 2 -nic none \
        -serial "file:$work/console" \
        -kernel "$work/vmlinuz" -initrd "$work/initrd" \
        -append "root=/dev/vda rw console=ttyS0 mitigations=off no_timer_check" \
        -drive "file=$work/disk,format=raw,if=virtio" \
        -drive "file.driver=vvfat,file.dir=$work/seed,file.label=cidata,format=raw,if=virtio,readonly=on" &&
        said=$(VSHMEM_UID_MAP="$(id -u) 2000 1" VSHMEM_GID_MAP="$(id -g) 2000 1" VSHMEM_POOL=$pools/work \
            timeout 300 vshmem run --local -- "$work/boss" 1000 1) &&
        [ "$said" = "the sum of the squares up to 1000 is 333833500" ] &&
        ! grep -a 'FAILED' "$work/console" || {
        tail -n 60 "$work/console"
        return 1
    }
    vshmem revoke work cloud && vshmem detach cloud
)
