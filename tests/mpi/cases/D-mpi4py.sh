# shellcheck shell=bash
# shellcheck disable=SC2154 # lib.sh sets it
# With MPI_FULL=1, mpi4py's own tests on each MPI: those of windows and of pickled objects by two ranks in two
# machines, and then all by four in four.
. "$MPI_HERE/lib.sh"
. "$MPI_HERE/mpi4py.sh"
if [ -n "${MPI_FULL:-}" ]; then
    need_four
    begin_with_nothing
    for mpi in mpich openmpi mpich5 openmpi5; do
        has "$mpi" || continue
        chosen=(-i test_util_pkl5 -i test_win) left_out=(-e test_spawn)
        case $mpi in
        # No port can be opened with UCX.
        mpich) left_out+=(-e test_dynproc) ;;
        # It has no windows between hosts for MPI_THREAD_MULTIPLE, and this version of the tests takes all
        # ranks for those of one host.
        openmpi) chosen=(-i test_util_pkl5) left_out+=(-e test_win) ;;
        esac
        MPIRUN="--vm vm0,vm1" mpi4py "$mpi" 2 "${chosen[@]}"
        mpi4py "$mpi" 4 "${left_out[@]}"
    done
    nothing_stays "all jobs end"
fi
