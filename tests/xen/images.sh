#!/bin/bash
# images.sh UNPACKED DRIVER WORK CASE...: makes what QEMU boots: WORK/xen, WORK/vmlinuz, and WORK/dom0.img,
# which has the guests' files in it. Without a DRIVER there is nothing of Vshmem in them, and guests have the
# files of this host's that XEN_FILES, a list, names.
set -eu

unpacked=$1
driver=$2
work=$3
shift 3
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
kernel=$(cat "$unpacked/kernel")
drivers=$unpacked/lib/modules/$kernel/kernel/drivers
modules=$drivers/xen
tools=$unpacked/usr/lib/xen-4.17/bin
export LD_LIBRARY_PATH=$unpacked/usr/lib/x86_64-linux-gnu

# put TREE FILE PLACE: a file with the libraries that it needs
put() {
    mkdir -p "$1/$(dirname "$3")"
    cp -L "$2" "$1/$3"
    libraries "$1" "$2"
}

# put_here TREE LIST: files of this host's, in the same places
put_here() {
    local files
    mapfile -t files <"$2"
    cp -L --parents -t "$1" "${files[@]}"
    libraries "$1" "${files[@]}"
}

# libraries TREE FILE...: what programs need; other files need none
libraries() {
    local tree=$1 library
    shift
    ldd "$@" 2>/dev/null | sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p; s/^\t\(\/[^ ]*\) .*/\1/p' | sort -u |
        while read -r library; do
        case $library in
        */ld-linux*) put_once "$tree" "$library" "lib64/${library##*/}" ;;
        *) put_once "$tree" "$library" "lib/${library##*/}" ;;
        esac
    done
}

put_once() {
    [ -e "$1/$3" ] || cp -L "$2" "$1/$3"
}

# What any dom0 and guest have.
base() {
    local program
    mkdir -p "$1"/{bin,dev,proc,sys,tmp,run,var,etc,lib,lib64,modules}
    cp "$(command -v busybox)" "$1/bin/busybox"
    for program in $(busybox --list); do
        [ -e "$1/bin/$program" ] || ln -s busybox "$1/bin/$program"
    done
    cp "$modules"/xen-evtchn.ko "$modules"/xen-gntdev.ko "$modules"/xen-gntalloc.ko "$1/modules"
    for program in read write ls rm watch chmod; do
        put "$1" "$unpacked/usr/bin/xenstore-$program" "bin/xenstore-$program"
    done
    put_once "$1" /lib/x86_64-linux-gnu/libgcc_s.so.1 lib/libgcc_s.so.1
    printf 'root:x:0:0::/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n' >"$1/etc/passwd"
    printf 'root:x:0:\nnogroup:x:65534:\n' >"$1/etc/group"
}

# What they have of Vshmem and its tests.
vshmem() {
    local program
    cp "$driver" "$1/modules"
    put "$1" "$VSHMEM_BIN" bin/vshmem
    strip "$1/bin/vshmem"
    put "$1" "$VSHMEM_LIB" lib/libvshmem.so
    strip -g "$1/lib/libvshmem.so"
    put "$1" "$VSHMEM_CONTRACT" bin/transport-contract
    strip "$1/bin/transport-contract"
    put "$1" "$work/forbid" bin/forbid
    put "$1" "$work/bench/pingpong" bin/pingpong
    put "$1" "$work/bench/busypong" bin/busypong
    put "$1" "$work/bench/netpong" bin/netpong
    put "$1" "$work/bench/vchanpong" bin/vchanpong
    put "$1" "$work/steal" bin/steal
    put "$1" "$work/peek" bin/peek
    put "$1" "$work/forge" bin/forge
    put "$1" "$here/programs/announce.sh" bin/announce
    mkdir -p "$1/tests"
    perl_and_python "$1"
    cp "$here"/programs/*.pl "$root"/tests/lib/programs/* "$root"/tests/programs/perl/{builtin,modules}.pl \
        "$1/tests"
    for program in $suite; do
        put "$1" "$work/$program" "tests/$program"
    done
    echo "$suite" >"$1/tests/suite"
}

# Only what the tests' programs import.
perl_and_python() {
    local file
    put "$1" "$(readlink -f "$(command -v perl)")" bin/perl
    put "$1" "$(readlink -f /usr/bin/python3)" bin/python3
    { /usr/bin/python3 -I "$here/imports.py" && perl "$here/imports.pl"; } | grep '^/' | while read -r file;
        do
        put "$1" "$file" "${file#/}"
    done
}

# What vshmem up needs in dom0: a kernel with its modules and the driver, and the QEMU that xl starts to serve
# files and channels.
domains_by_up() {
    local lib=$1/lib/modules/$kernel module
    mkdir -p "$1/boot" "$lib/kernel" "$lib/updates" "$1/usr/share/qemu/keymaps"
    cp "$work/vmlinuz" "$1/boot/vmlinuz-$kernel"
    cp "$unpacked/lib/modules/$kernel/modules.builtin" "$lib"
    for module in net/9p/9pnet net/9p/9pnet_xen fs/9p/9p fs/netfs/netfs fs/fscache/fscache \
        fs/overlayfs/overlay; do
        cp "$drivers/../$module.ko" "$lib/kernel"
    done
    cp "$driver" "$lib/updates"
    # Busybox's does not unpack a kernel.
    rm -f "$1/bin/xz"
    put "$1" "$(command -v xz)" bin/xz
    if ldd "$unpacked/usr/libexec/xen-qemu-system-i386" | grep 'not found'; then
        echo "tests/xen/images.sh: a library (above) is missing that Debian's qemu-system-xen needs:" \
            "install qemu-system-x86 and its recommended packages" >&2
        exit 1
    fi
    put "$1" "$unpacked/usr/libexec/xen-qemu-system-i386" usr/libexec/xen-qemu-system-i386
    cp /usr/share/qemu/keymaps/en-us "$1/usr/share/qemu/keymaps"
}

# The System V suite's programs (tests/conformance).
suite="sem msg shm process memory handlers users stopped death stress"

compile() {
    local program
    "${CC:-cc}" -O1 -o "$work/forbid" "$root/tests/conformance/forbid.c"
    for program in steal peek forge; do
        "${CC:-cc}" -std=gnu17 -Wall -Wextra -Werror -O2 -I"$root/kmod/xen" -o "$work/$program" \
            "$here/programs/$program.c"
    done
    make --silent -C "$root/lab" OUT="$work/bench" XEN="$unpacked/usr" all vchanpong
    for program in $suite; do
        "${CC:-cc}" -std=gnu17 -O1 -DTIME_LIMIT=400 -o "$work/$program" "$root/tests/conformance/$program.c" \
            -pthread
    done
}

pack() { # pack TREE IMAGE
    (cd "$1" && find . -print0 | cpio --null -o -H newc --quiet -R 0:0) >"$2"
}

# The kernel without its own decompression: xl may lack the memory for it.
/usr/bin/python3 "$here/unpack_kernel.py" "$unpacked/boot/vmlinuz-$kernel" "$work/vmlinux"
strip "$work/vmlinux"
cp "$unpacked/boot/vmlinuz-$kernel" "$work/vmlinuz"
gzip -dc "$unpacked/boot/xen-4.17-amd64.gz" >"$work/xen"

for tree in guest dom0; do
    base "$work/$tree"
done
if [ -n "$driver" ]; then
    compile
    vshmem "$work/guest"
    vshmem "$work/dom0"
elif [ -s "$XEN_FILES" ]; then
    put_here "$work/guest" "$XEN_FILES"
fi
cp "$here/guest.sh" "$work/guest/init"
cp "$drivers/net/xen-netfront.ko" "$work/guest/modules"
pack "$work/guest" "$work/guest.img"

cp "$modules"/xen-privcmd.ko "$modules"/xenfs/xenfs.ko "$drivers"/net/xen-netback/xen-netback.ko \
    "$work/dom0/modules"
cp "$drivers"/../net/llc/llc.ko "$drivers"/../net/802/stp.ko "$drivers"/../net/bridge/bridge.ko \
    "$work/dom0/modules"
for program in xl xenstored xenconsoled xen-init-dom0; do
    put "$work/dom0" "$tools/$program" "bin/$program"
done
# xl has the place of this one built in.
put "$work/dom0" "$tools/libxl-save-helper" usr/lib/xen-4.17/bin/libxl-save-helper
mkdir -p "$work/dom0/guest" "$work/dom0/cases" "$work/dom0/etc/xen/scripts"
: >"$work/dom0/etc/xen/xl.conf"
cp "$here/vif.sh" "$work/dom0/etc/xen/scripts/vif"
case " $* " in *" up "*) domains_by_up "$work/dom0" ;; esac
cp "$work/vmlinux" "$work/guest.img" "$work/dom0/guest"
cp "$here/lib.sh" "$root/tests/lib/checks.sh" "$work/dom0"
cp "$here"/cases/*.sh "$here"/bench/*.sh "$work/dom0/cases"
printf 'RUNS=%s\nDURATION=%s\n' "${XEN_RUNS:-1}" "${XEN_SECONDS:-0.5}" >"$work/dom0/cases/settings"
cp "$here/dom0.sh" "$work/dom0/init"
echo "$*" >"$work/dom0/cases/selected"
pack "$work/dom0" "$work/dom0.img"
