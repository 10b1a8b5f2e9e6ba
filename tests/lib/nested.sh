# shellcheck shell=sh
# An emulated machine that is the host of other machines, with KVM: QEMU emulates AMD's virtualization (SVM)
# with nested paging, so that the real KVM runs in it, a hundred times slower than on a processor, but with
# the same code. It has one processor: with two, QEMU's SVM (7.2 to 10.0) ends the machines in it by chance.
#
#   nested_kernel                  finds Debian's kernel with all its modules: $kernel; or ends
#   nested_modules FILE NAME...    what loads these modules will be $work/modules/FILE
#   nested_up HARDWARE OPTION...   boots the machine, with what nested/qemu.py lists, in as many words
#   nested_run OPTION... vm0 -- COMMAND...   runs a command in it, as `vshmem exec` does
#
# Sourced by suites that set `here` and `root`, and run as long as they do. VSHMEM_BIN and VSHMEM_LIB name the
# command and the library. The machine sees the checkout and $work, a directory.

target=${CARGO_TARGET_DIR:-$root/target}
VSHMEM_BIN=${VSHMEM_BIN:-$target/release/vshmem}
VSHMEM_LIB=${VSHMEM_LIB:-$target/release/libvshmem.so}
export VSHMEM_BIN VSHMEM_LIB
cache=${VSHMEM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/vshmem}
# shellcheck source=tests/lib/modules.sh
. "$root/tests/lib/modules.sh"

work=$(mktemp -d "${TMPDIR:-/tmp}/nested.XXXXXX")
nested=nested$$
nested_finish() {
    "$VSHMEM_BIN" down -c "$nested" >/dev/null 2>&1 || true
    rm -rf "$work"
}
trap nested_finish EXIT
trap 'exit 1' HUP INT TERM
chmod 755 "$work"
mkdir "$work/bin" "$work/modules"

# That of machines has only those modules which they need.
nested_kernel() {
    status=0
    version=$("$root/kmod/build.sh" --newest 6.1) &&
        kernel=$("$root/kmod/build.sh" --image "$(echo "$version" | sed 's/-cloud-/-/')") || status=$?
    if [ "$status" -ne 0 ]; then
        echo "The kernel for an emulated machine with KVM can't be had."
        [ "$status" -eq 2 ] && exit 77 || exit 1
    fi
}

nested_modules() {
    file=$1
    shift
    kernel_modules "$kernel" "$work/modules" "$@" >"$work/modules/$file"
}

# The installed QEMU; where it is too old for the network card, that of Debian's backports.
nested_qemu() {
    qemu=$(command -v qemu-system-x86_64)
    case $1 in *igb*) ;; *) return 0 ;; esac
    ! "$qemu" -device help | grep -q '^name "igb"' || return 0
    mkdir -p "$work/share/qemu"
    # The older firmware gives devices addresses below 4 GiB: see igb in nested/qemu.py.
    for package in qemu-system-x86/bookworm-backports qemu-system-data/bookworm-backports seabios; do
        files=$("$root/kmod/build.sh" --package "$package")/usr || return
        package=${package%/*}
        [ ! -d "$files/share/$package" ] || cp "$files/share/$package/"*.bin "$work/share/qemu"
        [ ! -d "$files/share/qemu" ] || cp "$files/share/qemu/"*.bin "$work/share/qemu"
        [ "$package" != qemu-system-x86 ] || cp "$files/bin/qemu-system-x86_64" "$work/bin/real"
    done
    qemu=$work/bin/real
}

nested_up() {
    nested_qemu "$1" || exit 77
    sed -e "s|@QEMU@|$qemu|" -e "s|@HARDWARE@|$1|" "$root/tests/lib/nested/qemu.py" \
        >"$work/bin/qemu-system-x86_64"
    chmod 755 "$work/bin/qemu-system-x86_64"
    shift
    PATH="$work/bin:$PATH" "$VSHMEM_BIN" up -c "$nested" -n 1 --cpus 1 --pool-size 1M --spare-pools 0 \
        --no-net --no-doorbell --accel tcg --timeout 600 --kernel "$kernel" --share "$root" \
        --share "$target" --share "$(dirname "$VSHMEM_BIN")" --share "$(dirname "$VSHMEM_LIB")" \
        --share "$cache" --share "$work" "$@" 2>"$work/up" || {
        cat "$work/up"
        exit 1
    }
    tail -n 1 "$work/up"
    nested_modules kvm irqbypass ccp kvm kvm-amd
    # Not as its own machines are called.
    nested_run -u root vm0 -- sh -ec ". $work/modules/kvm; chmod 666 /dev/kvm; hostname nested"
}

# The library and the pools of this host mean nothing there.
nested_run() {
    "$VSHMEM_BIN" exec -c "$nested" -e VSHMEM_BIN="$VSHMEM_BIN" -e VSHMEM_LIB="$VSHMEM_LIB" \
        -e VSHMEM_CACHE="$cache" -e XDG_RUNTIME_DIR=/run -e TMPDIR=/tmp -e MODULES="$work/modules" \
        -e KERNEL="$kernel" "$@"
}
