# shellcheck shell=bash
# shellcheck disable=SC2154 # lib.sh sets it
# The newest MPIs, from PyPI, with the newest UCX.
. "$MPI_HERE/lib.sh"
begin_with_nothing

for mpi in mpich5 openmpi5; do
    has $mpi || continue
    equal "$mpi: messages of 1 B to 4 MiB between two machines" "points: 2 ranks on 2 hosts" \
        "$(MPIRUN=--verify-transport job $mpi 2 points 2>"$work/err")"
    equal "$mpi: by the pool alone" "sysv" "$(taken)"
    equal "$mpi: collectives" "collectives: 2 ranks on 2 hosts" "$(job $mpi 2 collectives 2>&1)"
    equal "$mpi: collectives of four ranks" "collectives: 4 ranks on 2 hosts" "$(job $mpi 4 collectives 2>&1)"
    for way in fence lock atomic post; do
        equal "$mpi: one-sided, by $way" "$way: 2 ranks on 2 hosts" "$(job $mpi 2 onesided $way 2>&1)"
    done
    code "$mpi: a rank's exit code is the job's" 7 job $mpi 2 ends return
done
nothing_stays "all jobs end"
