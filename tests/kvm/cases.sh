#!/bin/sh
# Runs cases on the KVM of the kernel that it is run on; run.sh says which there are.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
if [ $# -eq 0 ]; then
    # shellcheck disable=SC2046 # a list of words
    set -- kvm $("$here/../machines/run.sh" --list) kmod
fi
driver=0
for name; do
    shift
    case $name in
    --quick | kvm) set -- "$@" "$here/kvm.sh" ;;
    kmod) driver=1 ;;
    *) set -- "$@" "$name" ;;
    esac
done
failed=0
[ $# -eq 0 ] || VSHMEM_TEST_UP="--accel kvm ${VSHMEM_TEST_UP:-}" "$here/../machines/run.sh" "$@" || failed=1
[ "$driver" -eq 0 ] || KMOD_KVM=1 "$here/../kmod/run.sh" || failed=1
exit "$failed"
