# shellcheck shell=bash
# shellcheck disable=SC2154 # lib.sh sets it
# A rank that is flooded with messages which it has not asked for, in a pool that has no room for them: UCX
# drops some, so the job has to end. Its hosts are name spaces.
. "$MPI_HERE/lib.sh"

need_nodes
code "another pool is small" 0 vshmem pool create "$nodes/small" --size 64M

# in_small MPI PROGRAM ARGUMENT: a job there
in_small() { POOL=$nodes/small by_nodes -n 2 "$MPI_PROGRAMS/$1/$2" "$3" >"$work/said" 2>&1; }

mpis=(mpich openmpi)
[ -z "${MPI_FULL:-}" ] || mpis+=(mpich5 openmpi5)
for mpi in "${mpis[@]}"; do
    has "$mpi" || continue
    in_small "$mpi" features flood
    ended=$?
    holds "$mpi: the job ends ($ended)" [ $((ended != 0 && ended != 124)) = 1 ]
    contains "$mpi: and says why" "the pool has no room for the messages" "$(cat "$work/said")"
    vshmem check "$nodes/small" >"$work/out" # mends what the dead have left
    code "$mpi: the pool is whole" 0 vshmem check "$nodes/small"
    equal "$mpi: nothing stays in it" "0 0 0" "$(vshmem ipcs --pool "$nodes/small" --json |
        field '*[len(pool[kind]) for pool in told["pools"] for kind in ("segments", "sets", "queues")]')"
    code "$mpi: and the next job has room" 0 in_small "$mpi" points 65536
done
end_nodes
