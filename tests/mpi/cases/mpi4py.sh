# shellcheck shell=bash
# shellcheck disable=SC2154 # lib.sh sets it
# With MPI_FULL=1, all of mpi4py's own tests by four ranks on one kernel, in four name spaces that have
# nothing in common but a pool, and in four machines:
#
#   MPI4PY_MPIS="mpich openmpi"   on these MPIs only
#   MPI4PY_WHERE=name-spaces      in these hosts only (or: machines)
#   MPI4PY_FILES=REGEX            only files of tests whose names have this in them
#   MPI4PY_SECONDS=300            that a file may take
#   MPI4PY_RESUME=1               goes on with a run that was cut off
#
# What is left out, and what comes to something else in several hosts, is in mpi4py/exceptions.txt, with why.
. "$MPI_HERE/lib.sh"
. "$MPI_HERE/mpi4py.sh"
if [ -n "${MPI_FULL:-}" ]; then
    read -ra where <<<"${MPI4PY_WHERE:-name-spaces machines}"
    for place in "${where[@]}"; do
        # shellcheck disable=SC2034 # for need_nodes
        case $place in
        name-spaces) export NODES=4 && POOL_SIZE=1G && need_nodes ;;
        machines) need_four && begin_with_nothing ;;
        esac
    done
    for mpi in ${MPI4PY_MPIS:-mpich openmpi mpich5 openmpi5}; do
        has "$mpi" || continue
        whole_mpi4py "$mpi" "${where[@]}"
    done
    case " ${where[*]} " in
    *" machines "*) nothing_stays "all jobs end" ;;
    esac
    [ -z "${keeper:-}" ] || end_nodes
fi
