# shellcheck shell=bash
# shellcheck disable=SC2154 # lib.sh sets it
# Ranks that are bound to cores have these for themselves: those of hosts that share a kernel, and with
# MPI_FULL=1 those of machines with two processors each.
. "$MPI_HERE/lib.sh"

mpis=(mpich openmpi mpich5 openmpi5)
if [ "$(nproc)" -lt 2 ]; then
    echo "skip    two hosts of one kernel have no core each"
else
    need_nodes
    for mpi in "${mpis[@]}"; do
        has "$mpi" || continue
        equal "$mpi: ranks of two hosts have cores of their own" "bound: 2 ranks on 2 hosts" \
            "$(by_nodes --bind-to core -n 2 "$MPI_PROGRAMS/$mpi/bound" all 2>"$work/err" || cat "$work/err")"
    done
    end_nodes
fi

if [ -n "${MPI_FULL:-}" ]; then
    vshmem down --all
    LIMIT=300 code "machines with two processors come up" 0 vshmem up -n 2 --cpus 2
    for mpi in "${mpis[@]}"; do
        has "$mpi" || continue
        equal "$mpi: ranks in a machine have cores of their own" "bound: 4 ranks on 2 hosts" \
            "$(MPIRUN="--bind-to core" job "$mpi" 4 bound 2>"$work/err" || cat "$work/err")"
    done
    vshmem down --all
fi
