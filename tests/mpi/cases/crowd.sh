# shellcheck shell=bash
# shellcheck disable=SC2154 # lib.sh sets it
# With MPI_FULL=1, more ranks than processors: eight in each of two machines, which must leave it to each
# other.
. "$MPI_HERE/lib.sh"
if [ -n "${MPI_FULL:-}" ]; then
    # shellcheck disable=SC2034 # for the function vshmem
    LIMIT=300
    # A rank's arrays for MPI_Alltoall have 52 MB.
    vshmem down --all
    code "two machines with memory for eight ranks come up" 0 vshmem up -n 2 --memory 1536M
    begin_with_nothing
    for mpi in mpich openmpi mpich5 openmpi5; do
        has "$mpi" || continue
        for program in "points 65536" collectives; do
            # shellcheck disable=SC2086 # a list of words
            equal "$mpi: ${program% *} of sixteen ranks" "${program% *}: 16 ranks on 2 hosts" \
                "$(MPIRUN="-host vm0:8,vm1:8" job "$mpi" 16 $program 2>"$work/err" || tail "$work/err")"
        done
    done
    nothing_stays "all jobs end"
    vshmem down --all
fi
