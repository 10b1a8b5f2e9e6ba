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

# A network card with verbs: RoCE by software, on the machines' own cards.
with_verbs() { vshmem exec -u root "$1" -- sh -ec "$2" >"$work/out" 2>&1; }
version=$(vshmem exec vm0 -- uname -r)
if ! installed rdma iproute2; then
    :
elif kernel=$("$MACHINES_ROOT/kmod/build.sh" --image "$version" 2>"$work/err"); then
    mkdir -p "$work/modules"
    kernel_modules "$kernel" "$work/modules" crc32_generic udp_tunnel ip6_udp_tunnel ib_core ib_uverbs \
        rdma_rxe >"$work/modules/rxe"
    for vm in vm0 vm1; do
        code "$vm gets a card with verbs" 0 \
            with_verbs "$vm" ". $work/modules/rxe; rdma link add rxe0 type rxe netdev eth0"
    done
    for mpi in mpich openmpi5; do
        has "$mpi" || continue
        # Of such a card, UCX takes no packet for its own by its address.
        equal "$mpi: ranks with different pools talk by verbs" "points: 2 ranks on 2 hosts" "$(
            MPIRUN="--verify-transport -hostfile $work/hosts -x UCX_UD_ETH_DGID_CHECK=n" \
                job "$mpi" 2 points 65536 2>"$work/err")"
        equal "$mpi: each of them" "ud_verbs ud_verbs" "$(taken | xargs)"
    done
    for vm in vm0 vm1; do code "$vm has it no longer" 0 with_verbs "$vm" "rdma link delete rxe0"; done
else
    echo "skip    verbs: no modules of Linux $version can be had: $(tail -n 1 "$work/err" | cut -c1-200)"
fi

code "the pool is taken away" 0 vshmem revoke "other.$VSHMEM_CLUSTER" vm1
code "and removed" 0 vshmem pool rm "other.$VSHMEM_CLUSTER"
nothing_stays "all jobs end"
