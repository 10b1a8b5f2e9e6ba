# shellcheck shell=bash
# shellcheck disable=SC2154 # lib.sh sets it
# Messages and collectives between machines, by the MPIs that Debian has: with contents and results checked.
. "$MPI_HERE/lib.sh"
begin_with_nothing

for mpi in mpich openmpi; do
    equal "$mpi: messages of 1 B to 4 MiB between two machines" "points: 2 ranks on 2 hosts" \
        "$(MPIRUN=--verify-transport job $mpi 2 points 2>"$work/err")"
    equal "$mpi: by the pool alone" "sysv" "$(taken)"
    equal "$mpi: collectives" "collectives: 2 ranks on 2 hosts" "$(job $mpi 2 collectives 2>&1)"
    # Two ranks on a processor that has other work, too.
    equal "$mpi: messages of four ranks" "points: 4 ranks on 2 hosts" "$(job $mpi 4 points 65536 2>&1)"
    equal "$mpi: collectives of four ranks" "collectives: 4 ranks on 2 hosts" "$(job $mpi 4 collectives 2>&1)"
done
nothing_stays "all jobs end"
