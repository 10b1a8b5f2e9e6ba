# shellcheck shell=bash
# shellcheck disable=SC2154 # lib.sh sets it
# With MPI_FULL=1, all of mpi4py's own tests by four ranks in four machines, and on one kernel beside:
#
#   MPI4PY_MPIS="mpich openmpi"   on these MPIs only
#   MPI4PY_FILES=REGEX            only files of tests whose names have this in them
#   MPI4PY_SECONDS=300            that a file may take
#   MPI4PY_RESUME=1               goes on with a run that was cut off
#
# What is left out, and what comes to something else between machines, is in mpi4py/exceptions.txt, with why.
. "$MPI_HERE/lib.sh"
. "$MPI_HERE/mpi4py.sh"
if [ -n "${MPI_FULL:-}" ]; then
    need_four
    begin_with_nothing
    for mpi in ${MPI4PY_MPIS:-mpich openmpi mpich5 openmpi5}; do
        has "$mpi" || continue
        whole_mpi4py "$mpi"
    done
    nothing_stays "all jobs end"
fi
