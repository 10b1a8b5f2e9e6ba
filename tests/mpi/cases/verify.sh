# shellcheck shell=bash
# shellcheck disable=SC2154 # lib.sh sets it
# --verify-transport fails each job whose MPI has left UCX, by options, variables or files of parameters, and
# no other. Hosts are name spaces, whose network and System V IPC are their own as those of machines are.
. "$MPI_HERE/lib.sh"
need_nodes

# verified WHAT EXPECTED WORDS...: the exit code of a job that is verified; what mpirun said is in $work/err
verified() {
    local what=$1 expected=$2
    shift 2
    code "$what" "$expected" by_nodes --verify-transport -n 2 "$@"
    cp "$work/out" "$work/err"
}

# leaves WHAT WORDS...: that job fails, and says so
leaves() {
    verified "$1: fails" 1 "${@:2}"
    # Where components that are left out are not even loaded, UCX's library isn't.
    holds "$1: and says why" grep -qE "has started UCX|have taken nothing of UCX's" "$work/err"
}

# stays WHAT WORDS...: that job's messages go through the pool
stays() {
    verified "$1: succeeds" 0 "${@:2}"
    contains "$1: by the pool" "have taken sysv" "$(cat "$work/err")"
}

# Files in which Open MPI and UCX look for parameters.
mkdir -p "$work/home/.openmpi" "$work/ucx"
printf '%s\n' 'pml = ob1' 'btl = tcp,self' | tee "$work/home/.openmpi/mca-params.conf" >"$work/parameters"
echo 'UCX_TLS=tcp,self' >"$work/ucx/ucx.conf"

for mpi in mpich mpich5; do
    has "$mpi" || continue
    points=("$MPI_PROGRAMS/$mpi/points" 64)
    stays "$mpi" "${points[@]}"
    verified "$mpi: ranks that only begin and end: succeed" 0 "$MPI_PROGRAMS/$mpi/idle"
    by_nodes --verify-transport -n 2 -x MPIR_CVAR_CH4_NETMOD=ofi "${points[@]}" >"$work/out" \
        2>"$work/err" || true
    # Without ofi it refuses that, or stays with UCX (4.2.1).
    if grep -qE "have ended with|have taken sysv" "$work/err"; then
        echo "skip    $mpi has no ofi: $(tail -n 1 "$work/err" | cut -c1-200)"
    else
        leaves "$mpi by ofi" -x MPIR_CVAR_CH4_NETMOD=ofi "${points[@]}"
    fi
    # Older names, and UCX's file: what vshmem mpirun sets is stronger.
    stays "$mpi: by MPICH's older names of variables" -x MPICH_CH4_NETMOD=ofi -x MPIR_PARAM_CH4_NETMOD=ofi \
        "${points[@]}"
    stays "$mpi: by UCX's file" -x "UCX_CONFIG_DIR=$work/ucx" "${points[@]}"
done

for mpi in openmpi openmpi5; do
    has "$mpi" || continue
    points=("$MPI_PROGRAMS/$mpi/points" 64)
    stays "$mpi" "${points[@]}"
    verified "$mpi: ranks that only begin and end: succeed" 0 "$MPI_PROGRAMS/$mpi/idle"
    leaves "$mpi by ob1 and btl/tcp" --mca pml ob1 --mca btl tcp,self "${points[@]}"
    leaves "$mpi by variables" -x OMPI_MCA_pml=^ucx -x OMPI_MCA_btl=tcp,self "${points[@]}"
    stays "$mpi: by the user's file" -x "HOME=$work/home" "${points[@]}"
    stays "$mpi: by another file" -x "OMPI_MCA_mca_base_param_files=$work/parameters" "${points[@]}"
    stays "$mpi: by UCX's file" -x "UCX_CONFIG_DIR=$work/ucx" "${points[@]}"
    # Open MPI's UCX has variables of its own, which are stronger.
    verified "$mpi by UCX's tcp: fails" 1 -x MPI_UCX_TLS=tcp,self "${points[@]}"
    contains "$mpi by UCX's tcp: and says why" "have talked over the network" "$(cat "$work/err")"
    # hcoll is not in Debian's Open MPI, nor in PyPI's; where it is not, its parameter means nothing.
    stays "$mpi: with hcoll" --mca coll_hcoll_enable 1 "${points[@]}"
done

# cm and ofi, and one-sided operations past UCX: version 4 has no way by them from host to host.
if has openmpi5; then
    verified "openmpi5 by osc/rdma and btl/tcp: fails" 1 --mca osc rdma --mca btl tcp,self \
        "$MPI_PROGRAMS/openmpi5/onesided" fence
    contains "openmpi5 by osc/rdma: and says why" "OMPI_MCA_osc=rdma" "$(cat "$work/err")"
fi

# Programs that are none of MPI's, one rank, and jobs that fail.
mpi=openmpi
! has openmpi5 || mpi=openmpi5
launcher=$(by_nodes --explain --json -n 2 "$MPI_PROGRAMS/$mpi/idle" | field 'told["command"][0]')
verified "no program of MPI's: succeeds" 0 --mpi "$launcher" hostname
code "one rank by ob1: succeeds" 0 by_nodes --verify-transport -n 1 --mca pml ob1 --mca btl self \
    "$MPI_PROGRAMS/$mpi/idle"
verified "a job that fails: keeps its code" 7 --mpi "$launcher" sh -c 'exit 7'
contains "a job that fails: is not said to have taken nothing" "have ended with 7 before" "$(cat "$work/err")"
end_nodes
