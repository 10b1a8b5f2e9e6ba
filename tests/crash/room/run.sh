#!/bin/sh
# run.sh LIBRARY: what happens when the file system of a pool is full: on a small one of its own, beside the
# pool and around it.
set -eu

library=$1
here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d "${TMPDIR:-/tmp}/vshmem-room.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' HUP INT TERM
"${CC:-cc}" -std=gnu17 -Wall -Wextra -Werror -O1 -o "$scratch/room" "$here/room.c"
cp "$library" "$scratch/libvshmem.so"
mkdir "$scratch/small"

# In a mount namespace of its own: the file system goes with it. $1: of the pool.
# shellcheck disable=SC2016 # the inner shell expands it
inside='mount -t tmpfs -o size=40M tmpfs "$0/small" &&
    env VSHMEM_POOL="$0/small/pool" VSHMEM_POOL_SIZE="$1" VSHMEM_KEYS=all LD_PRELOAD="$0/libvshmem.so" \
        "$0/room" "$0/small/filler"'
own=--map-root-user
[ "$(id -u)" -ne 0 ] || own=
status=0
for size in 64M 128M; do
    echo "== a pool of $size where there is room for 40M"
    # shellcheck disable=SC2086 # a word, or none
    unshare $own --mount --ipc sh -c "$inside" "$scratch" "$size" || status=1
done
exit $status
