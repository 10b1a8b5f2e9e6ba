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
[ $limit != memory.max ] || echo +memory >"${group%/*}/cgroup.subtree_control"
mkdir "$group"
trap 'rmdir "$group"' EXIT
echo "$bytes" >"$group/$limit"
status=0
sh -c 'echo $$ >"$1/cgroup.procs" && shift && exec "$@"' sh "$group" "$@" || status=$?
exit "$status"
