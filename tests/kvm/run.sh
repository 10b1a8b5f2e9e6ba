#!/bin/sh
# Tests machines on KVM: here, or where there is none, in an emulated machine that has KVM itself.
#
#   tests/kvm/run.sh              what only KVM does, all cases of tests/machines, and the driver's tests
#   tests/kvm/run.sh --quick      what only KVM does
#   tests/kvm/run.sh NAME...      only these cases: kvm for what only KVM does, kmod for the driver's tests,
#                                 or names of files in tests/machines/cases
#
# The emulated machine (tests/lib/nested.sh) has two memory nodes, the second one without a processor.
# VSHMEM_TEST_NESTED=1 takes that way also where KVM works.
#
# VSHMEM_BIN and VSHMEM_LIB name the command and the
# library, as for tests/machines/run.sh. Ends with "N passed, N failed". Status 77: neither can be had, and it
# is said why.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
# shellcheck source=tests/lib/nested.sh
. "$root/tests/lib/nested.sh"

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
    "$here/cases.sh" "$@"
    exit
fi

nested_kernel
# What cases of tests/machines have built is built here.
[ "${1:-}" = --quick ] || "$root/scripts/build.sh" helpers

# The driver for the machines' kernel is built here: that machine has no network by which its headers come.
said=$("$VSHMEM_BIN" up -c "kvmtry$$" -n 1 --no-net --accel tcg 2>&1) || {
    echo "$said"
    exit 1
}
"$VSHMEM_BIN" down -c "kvmtry$$" >/dev/null 2>&1
case $said in
*"wake each other"*) ;;
*)
    version=$(echo "$said" | sed -n 's/^vshmem up: kernel \([^ ]*\).*/\1/p')
    "$root/kmod/build.sh" "$version" >/dev/null
    ;;
esac

echo "== in an emulated machine with KVM"
nested_up nodes --memory 4G
nested_run -e VSHMEM_TEST_BUILT=1 -e VSHMEM_TEST_UP="--timeout 600" -e VSHMEM_TEST_SLOW=5 \
    -e KMOD_ROUNDS=2000 vm0 -- "$here/cases.sh" "$@"
