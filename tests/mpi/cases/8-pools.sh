# shellcheck shell=bash
# shellcheck disable=SC2154 # lib.sh sets it
# Two pools: ranks with different ones never take each other for neighbours.
. "$MPI_HERE/lib.sh"
begin_with_nothing

code "another pool is made" 0 vshmem pool create "other.$VSHMEM_CLUSTER" --size 256M
code "and granted to one machine" 0 vshmem grant "other.$VSHMEM_CLUSTER" vm1
printf 'vm0 slots=1\nvm1 slots=1 pool=other.%s\n' "$VSHMEM_CLUSTER" >"$work/hosts"
equal "ranks with different pools talk by TCP" "points: 2 ranks on 2 hosts" \
    "$(MPIRUN="--verify-transport -hostfile $work/hosts" job mpich 2 points 65536 2>"$work/err")"
equal "not by a pool" "" "$(taken | grep sysv)"
passed_by_network=$(sed -n 's/.*vm0: \([0-9]*\) bytes passed.*/\1/p' "$work/err")
holds "but by the network" [ "${passed_by_network:-0}" -gt 1000000 ]
code "where they have no TCP, they don't find each other" 0 \
    sh -c "! UCX_TLS=sysv,self timeout 60 '$VSHMEM_BIN' mpirun -hostfile '$work/hosts' -n 2 \
        '$MPI_PROGRAMS/mpich/points' 64"
contains "and say so" "nreachable" "$(cat "$work/out")"
code "the pool is taken away" 0 vshmem revoke "other.$VSHMEM_CLUSTER" vm1
code "and removed" 0 vshmem pool rm "other.$VSHMEM_CLUSTER"
nothing_stays "all jobs end"
