#!/bin/sh
# The suite hypervisors in miniature in a domain of Xen, which takes some minutes: a part of `make test-xen`.
# The exit code is 77 where Xen can't be had. The check of the lab has a script in its place.
set -eu

cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    echo "lab: $*" >&2
    cat "$work/said" >&2
    exit 1
}

./vshmem-lab run hypervisors --miniature --contender Xen --environment small --environment threads \
    --case HPL --case 'pi by' --output "$work/run" >"$work/said" 2>&1 ||
    fail "the suite hypervisors failed in Xen"
if grep -q 'missing: skipped' "$work/said"; then
    grep -m 1 'missing: skipped' "$work/said"
    exit 77
fi
! grep 'missing:' "$work/said" | grep -v 'not installed' || fail "not measured in Xen (above)"
grep -q 'in QEMU/TCG' "$work/said" || fail "Xen is not in the table of features"
grep -Eq 'Xen, small pages +[0-9,]+ intervals +[0-9.,]+ ' "$work/said" || fail "no time of a dwarf in Xen"
grep -qi emulated "$work/said" || fail "it does not say that Xen is emulated"
echo "lab: the suite hypervisors runs in Xen"
