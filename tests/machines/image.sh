#!/bin/sh
# image.sh: a disk image that stands for Debian's cloud image: its kernel, GRUB, systemd and cloud-init. It is
# made once and kept in the cache ($VSHMEM_CACHE, by default ~/.cache/vshmem). Prints its path without the
# endings: .qcow2, and of its kernel .vmlinuz, .initrd and .version.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/system.sh
. "$here/../system.sh"
PACKAGES=systemd-sysv,udev,dbus,cloud-init,e2fsprogs,iproute2
PACKAGES=$PACKAGES,initramfs-tools,linux-image-cloud-amd64,grub-pc-bin
MIB=1500

cache=${VSHMEM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/vshmem}/images
image=$cache/debian-12-$(sha256sum "$0" | cut -c1-12)
if [ -e "$image.qcow2" ]; then
    echo "$image"
    exit
fi
archive=$(system bookworm "$PACKAGES")
mkdir -p "$cache"
work=$(mktemp -d "$cache/.new.XXXXXX")
# The owners of its files are those of a name space.
trap 'as_root -- rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

# shellcheck disable=SC2016 # the inner shell expands it
as_root -- sh -eu -c '
    work=$2 mib=$3
    mkdir "$work/tree"
    zstd -qdc "$1" | tar -x --numeric-owner -C "$work/tree"
    tree=$work/tree
    mkdir -p "$tree/etc/systemd/system/multi-user.target.wants" "$tree/boot/grub"
    ln -s /lib/systemd/system/systemd-networkd.service "$tree/etc/systemd/system/multi-user.target.wants"
    echo "LABEL=root / ext4 defaults 0 1" >"$tree/etc/fstab"
    # It has no locales that cloud-init could choose from.
    echo "locale: false" >"$tree/etc/cloud/cloud.cfg.d/locale.cfg"
    # Hosts that emulate machines may be slow, and busy: then the check that the timer ticks can fail.
    parameters="root=/dev/vda1 ro console=ttyS0 quiet no_timer_check systemd.default_timeout_start_sec=900"
    printf "%s\n" "set timeout=0" "menuentry Debian {" "linux /vmlinuz $parameters" "initrd /initrd.img" "}" \
        >"$tree/boot/grub/grub.cfg"
    chroot "$tree" grub-mkimage -O i386-pc -o /boot/grub/core.img -p "(hd0,msdos1)/boot/grub" \
        biosdisk part_msdos ext2 normal linux

    # A boot sector, GRUB behind it, and one partition from 1 MiB on. GRUB does not know all of ext4.
    truncate -s "${mib}M" "$work/disk"
    mke2fs -q -t ext4 -O ^orphan_file,^metadata_csum_seed -L root -d "$tree" -E offset=1048576 \
        "$work/disk" "$((mib - 1))M"
    put() { dd of="$work/disk" conv=notrunc status=none "$@"; }
    put if="$tree/usr/lib/grub/i386-pc/boot.img" bs=440 count=1
    put if="$tree/boot/grub/core.img" bs=512 seek=1
    sectors=$(((mib - 1) * 2048))
    entry="\\200\\376\\377\\377\\203\\376\\377\\377\\000\\010\\000\\000"
    for shift in 0 8 16 24; do
        entry=$entry$(printf "\\\\%03o" $((sectors >> shift & 255)))
    done
    printf "$entry" | put bs=1 seek=446
    printf "\\125\\252" | put bs=1 seek=510
    qemu-img convert -O qcow2 "$work/disk" "$work/qcow2"
    cp "$tree"/boot/vmlinuz-* "$work/vmlinuz"
    cp "$tree"/boot/initrd.img-* "$work/initrd"
    ls "$tree/lib/modules" >"$work/version"
    chmod 644 "$work/initrd" "$work/vmlinuz"
' sh "$archive" "$work" "$MIB"
# The disk comes last: if it is there, the rest is.
for part in vmlinuz initrd version qcow2; do
    mv "$work/$part" "$image.$part"
done
echo "$image"
