# shellcheck shell=bash
# shellcheck disable=SC2154 # lib.sh sets it
# Four machines with a rank each: all of them talk with each other.
. "$MPI_HERE/lib.sh"
. "$MPI_HERE/others.sh"
need_four
begin_with_nothing
cp "$MPI_HERE"/inputs/* "$work"

mpis=(mpich openmpi) ways=(post)
[ -z "${MPI_FULL:-}" ] || mpis+=(mpich5 openmpi5) ways=(fence lock post atomic)
for mpi in "${mpis[@]}"; do
    has "$mpi" || continue
    equal "$mpi: messages of 1 B to 4 MiB between four machines" "points: 4 ranks on 4 hosts" \
        "$(MPIRUN=--verify-transport job "$mpi" 4 points 2>"$work/err")"
    equal "$mpi: by the pool alone" "sysv" "$(taken)"
    equal "$mpi: collectives" "collectives: 4 ranks on 4 hosts" "$(job "$mpi" 4 collectives 2>&1)"
    for way in "${ways[@]}"; do
        # These fail by the kernel's System V as well: atomic operations hang, fences lose data.
        case "$mpi $way" in "openmpi atomic" | "mpich fence") continue ;; esac
        equal "$mpi: one-sided, by $way" "$way: 4 ranks on 4 hosts" "$(job "$mpi" 4 onesided "$way" 2>&1)"
    done
done

# README's section "MPI", in these machines.
readme=$MPI_FILES/readme
mkdir "$readme" && cp -r "$MACHINES_ROOT/examples" "$readme" && cd "$readme" || exit 1
blocks_of "$MACHINES_ROOT/README.md" "MPI" "$work/mpi-block"
PATH=$(dirname "$VSHMEM_BIN"):$PATH types "$work/mpi-block/1.sh" '/^vshmem up/d'
cd "$work" && rm -r "$readme" || exit 1

# What ranks that wait use of a host that has fewer processors than its machines have.
equal "mpich: ranks that wait let their machines halt" "features: 4 ranks on 4 hosts" \
    "$(MPIRUN="-x VSHMEM_UCX_YIELD=sleep" job mpich 4 features rest 2>&1)"
[ "$(nproc)" -ge 4 ] || contains "and are told to, as this host has only $(nproc) processors" \
    "VSHMEM_UCX_YIELD=sleep" "$(vshmem mpirun --explain -n 4 "$MPI_PROGRAMS/mpich/features" 2>&1)"

lammps in.lj 4 50
if [ -n "${MPI_FULL:-}" ]; then
    netpipe NPopenmpi netpipe-openmpi 4194305
    netpipe NPmpich2 netpipe-mpich2 4194305
    hpc_challenge 4
    rhodopsin 4
fi
nothing_stays "all jobs end"
