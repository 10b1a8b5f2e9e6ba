#!/bin/sh
# Makes the package vshmem-dkms_VERSION_all.deb: the source of vshmem.ko and vshmem_xen.ko, built by DKMS for each kernel of the machine that
# it is installed on. Needs dpkg-deb, no root.
#
#   packaging/dkms-deb.sh [DIRECTORY]    where the package goes; by default here
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
out=$(cd "${1:-.}" && pwd)
version=$(sed -n 's/^PACKAGE_VERSION="\(.*\)"/\1/p' "$root/kmod/dkms.conf")
tree=$(mktemp -d "${TMPDIR:-/tmp}/vd.XXXXXX")
trap 'rm -rf "$tree"' EXIT
trap 'exit 1' HUP INT TERM
chmod 755 "$tree"

umask 022
make -s -C "$root/kmod" install-files DESTDIR="$tree"
gzip -9n "$tree/usr/share/man/man4/vshmem.4"
mkdir "$tree/DEBIAN"
cat >"$tree/DEBIAN/control" <<CONTROL
Package: vshmem-dkms
Version: $version
Architecture: all
Maintainer: The Vshmem developers <root@localhost>
Section: kernel
Priority: optional
Depends: dkms (>= 2.8), passwd
Description: drivers for memory that virtual machines share (ivshmem, Xen)
 The kernel module vshmem maps the memory of QEMU's ivshmem devices write-back,
 and lets programs wait for and wake each other across machines. vshmem_xen
 does so for pages that Xen domains grant to each other.
CONTROL
cat >"$tree/DEBIAN/postinst" <<POSTINST
#!/bin/sh
set -e
if [ "\$1" = configure ]; then
    getent group vshmem >/dev/null || groupadd --system vshmem
    dkms add vshmem/$version || dkms status vshmem/$version
    dkms autoinstall || echo "vshmem-dkms: the module is built at the next start, or by: dkms autoinstall" >&2
fi
POSTINST
cat >"$tree/DEBIAN/prerm" <<PRERM
#!/bin/sh
set -e
case \$1 in
remove | upgrade) dkms remove vshmem/$version --all || true ;;
esac
PRERM
chmod 755 "$tree/DEBIAN/postinst" "$tree/DEBIAN/prerm"
dpkg-deb --root-owner-group --build "$tree" "$out/vshmem-dkms_${version}_all.deb" >/dev/null
echo "$out/vshmem-dkms_${version}_all.deb"
