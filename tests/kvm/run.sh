#!/bin/sh
# Tests machines on KVM: here, or where there is none, in an emulated machine that has KVM itself.
#
#   tests/kvm/run.sh              what only KVM does, all cases of tests/machines, and the driver's tests
#   tests/kvm/run.sh --quick      what only KVM does
#   tests/kvm/run.sh NAME...      only these cases: kvm for what only KVM does, kmod for the driver's tests,
#                                 or names of files in tests/machines/cases
#
# QEMU emulates AMD's virtualization (SVM) with nested paging, so that in a machine of `vshmem up` the real
# KVM runs, with machines of its own: a hundred times slower than on a processor, but with the same code. The
# emulated machine has one processor: with two, QEMU's SVM (7.2 to 10.0) ends the machines in it by chance.
# It has two memory nodes, the second one without a processor.
# VSHMEM_TEST_NESTED=1 takes that way also where KVM works.
#
# VSHMEM_BIN and VSHMEM_LIB name the command and the
# library, as for tests/machines/run.sh. Ends with "N passed, N failed". Status 77: neither can be had, and it
# is said why.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
VSHMEM_BIN=${VSHMEM_BIN:-$target/release/vshmem}
VSHMEM_LIB=${VSHMEM_LIB:-$target/release/libvshmem.so}
export VSHMEM_BIN VSHMEM_LIB
# shellcheck source=tests/lib/modules.sh
. "$root/tests/lib/modules.sh"

# Whether machines boot on this host's KVM.
has_kvm() {
    [ "${VSHMEM_TEST_NESTED:-0}" = 0 ] && [ -r /dev/kvm ] && [ -w /dev/kvm ] || return 1
    said=$("$VSHMEM_BIN" up -c "kvmtry$$" -n 1 --no-net 2>&1) || true
    "$VSHMEM_BIN" down -c "kvmtry$$" >/dev/null 2>&1 || true
    case $said in *"with KVM"*) return 0 ;; esac
    return 1
}

if has_kvm; then
    echo "== on this host's KVM"
    exec "$here/cases.sh" "$@"
fi

# Debian's kernel with all its modules: that of machines has only those which they need.
kernel_of() { # kernel_of SERIES
    version=$("$root/kmod/build.sh" --newest "$1") || return
    "$root/kmod/build.sh" --image "$(echo "$version" | sed 's/-cloud-/-/')"
}
status=0
kernel=$(kernel_of 6.1) || status=$?
if [ "$status" -ne 0 ]; then
    echo "There is no KVM here that machines boot on, nor can a kernel for an emulated one with KVM be had."
    [ "$status" -eq 2 ] && exit 77 || exit 1
fi

work=$(mktemp -d "${TMPDIR:-/tmp}/kvm.XXXXXX")
cluster=kvm$$
finish() {
    "$VSHMEM_BIN" down -c "$cluster" >/dev/null 2>&1 || true
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 1' HUP INT TERM
chmod 755 "$work"

kernel_modules "$kernel" "$work" irqbypass ccp kvm kvm-amd >"$work/load.sh"
echo "chmod 666 /dev/kvm" >>"$work/load.sh"
# Not as its own machines are called.
echo "hostname kvm-host" >>"$work/load.sh"
# What cases of tests/machines have cargo build is built here.
[ "${1:-}" = --quick ] || for built in "vshmem-wait --features soak --bin doorbell-soak" \
    "vshmem-transport --features contract --bin transport-contract"; do
    # shellcheck disable=SC2086 # a list of words
    "$root/scripts/cargo.sh" --exec build --quiet --release --locked --manifest-path "$root/Cargo.toml" \
        -p $built
done

# Nodes are made by placement, as on a host that has two.
mkdir "$work/placed"
cp "$VSHMEM_BIN" "$VSHMEM_LIB" "$work/placed"
half=$((2 << 30))
cat >"$work/answer" <<JSON
{"version": 1, "topology": "faked", "machines": [{"name": "vm0", "memory": $((2 * half)),
  "rules": {"policy": "unpinned", "cores": "preferred", "memory": "preferred", "smt": false,
    "reserve_cores": 0},
  "vcpus": ["0"], "emulator": "0", "nodes": "",
  "guest": {"sockets": 1, "cores": 1, "threads": 1, "nodes": [
    {"vcpus": "0", "memory": $half, "host": 0, "distances": [10, 21]},
    {"vcpus": "", "memory": $half, "host": 0, "distances": [21, 10]}]},
  "why": [], "fallbacks": []}]}
JSON
printf '#!/bin/sh\ncat >/dev/null\ncat "%s"\n' "$work/answer" >"$work/placed/vshmem-place"
chmod +x "$work/placed/vshmem-place"

echo "== in an emulated machine with KVM"
cache=${VSHMEM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/vshmem}
"$work/placed/vshmem" up -c "$cluster" -n 1 --cpus 1 --memory 4G --placement unpinned --pool-size 1M \
    --no-net --no-doorbell --accel tcg --timeout 600 --kernel "$kernel" \
    --share "$root" --share "$target" --share "$(dirname "$VSHMEM_BIN")" --share "$(dirname "$VSHMEM_LIB")" \
    --share "$cache" --share "$work" 2>"$work/up" || {
    cat "$work/up"
    exit 1
}
tail -n 1 "$work/up"
in_it() {
    "$VSHMEM_BIN" exec -c "$cluster" "$@"
}
in_it -u root vm0 -- sh -e "$work/load.sh"
# The library and the pools of this host mean nothing there.
in_it -e VSHMEM_CACHE="$cache" -e XDG_RUNTIME_DIR=/run -e TMPDIR=/tmp -e VSHMEM_TEST_UP="--timeout 600" \
    -e VSHMEM_TEST_SLOW=5 \
    -e KMOD_ROUNDS=2000 vm0 -- "$here/cases.sh" "$@"
