#!/bin/bash
# MPICH over UCX's System V transport: segments that are removed right after the first
# attachment, and attached by id afterwards.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

need mpicc.mpich libmpich-dev
need mpiexec.mpich mpich
mpicc.mpich -Wall -Wextra -Werror -O2 "$here/mpi/ring.c" -o ring

# Nothing but System V shared memory between the processes. UCX's memory hooks make their
# own system calls, behind the interposer's back.
export UCX_TLS=sysv,self UCX_MEM_MMAP_HOOK_MODE=none
# More processes than cores, and as root, are what we want here.
export HYDRA_LAUNCHER=fork

# Of one rank by itself: mpiexec of MPICH 4.2 ends with 0, now and then, when its ranks were killed.
needs_sysv ./ring
for processes in 2 3; do
    mpiexec.mpich -n $processes "${on_vshmem[@]}" ./ring >ring.log 2>&1 || {
        cat ring.log
        fail "$processes processes"
    }
    equal "output" "$processes processes done" "$(cat ring.log)"
done
nothing_left || fail "objects are left: $(objects)"
echo "2 and 3 processes: messages of 1 B to 1 MiB, sums"
