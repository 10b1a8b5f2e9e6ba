#!/bin/sh
# Runs a program that may have only so much memory, in a control group of its own: the rest of it is swapped.
#
#   scarce.sh BYTES PROGRAM...
set -eu

bytes=$1
shift

missing() {
    echo "missing: $*" >&2
    exit 77
}

[ "$(id -u)" -eq 0 ] || missing "only root limits memory"
[ "$(wc -l </proc/swaps)" -gt 1 ] || missing "this kernel has no swap, so that programs would be killed"

name=vshmem-lab-$$
if grep -qw memory /sys/fs/cgroup/cgroup.controllers 2>/dev/null; then
    group=/sys/fs/cgroup/$name limit=memory.max
elif [ -e /sys/fs/cgroup/memory/memory.limit_in_bytes ]; then
    group=/sys/fs/cgroup/memory/$name limit=memory.limit_in_bytes
else
    # A machine that has no such hierarchy mounted.
    root=/run/vshmem-lab-groups
    mkdir -p $root
    mountpoint -q $root || mount -t cgroup2 none $root 2>/dev/null || missing "there are no control groups"
    grep -qw memory $root/cgroup.controllers || missing "there are no control groups for memory"
    group=$root/$name limit=memory.max
fi
[ $limit != memory.max ] || echo +memory 2>/dev/null >"${group%/*}/cgroup.subtree_control" ||
    missing "this control group may not limit memory: something runs in it, or it is read-only"
mkdir "$group" 2>/dev/null || missing "a control group can't be made in ${group%/*}"
trap 'rmdir "$group"' EXIT
echo "$bytes" 2>/dev/null >"$group/$limit" || missing "the control group takes no limit"
# Memory and swap together may have a limit of their own, which is above all else.
[ "$(cat "$group/$limit")" -le "$bytes" ] || missing "the control group did not take its limit"
status=0
sh -c 'echo $$ >"$1/cgroup.procs" && shift && exec "$@"' sh "$group" "$@" || status=$?
exit "$status"
