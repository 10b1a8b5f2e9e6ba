#!/bin/sh
# team.sh N WAY IN PROGRAM...: N processes, threads or ranks of a program, on a core each while there are
# enough.
#
#   WAY  alone      one process, which makes the others itself
#        processes  each is started by itself
#        threads    OpenMP
#        ranks      MPI, by its launcher
#   IN   kernel     by the kernel's System V, or the MPI's own memory
#        pool       by Vshmem: the library LIBRARY, the pool POOL, and for ranks the command VSHMEM
#
# MPIEXEC is the launcher of MPI (mpiexec), MPI its kind (mpich). LIBS is where programs have libraries of
# their own, if they have.
#
# team.sh cpus: the processors that there are for us, a thread of each core before any second one.
set -eu

# Those of a list as the kernel writes it, one a line.
each_of() {
    echo "$1" | tr ',' '\n' | while IFS=- read -r from to; do seq "$from" "${to:-$from}"; done
}

cpus() {
    each_of "$(awk '$1 == "Cpus_allowed_list:" { print $2 }' /proc/self/status)" | while read -r cpu; do
        siblings=/sys/devices/system/cpu/cpu$cpu/topology/thread_siblings_list
        place=0
        # Its place among its core's threads.
        for other in $( [ ! -r "$siblings" ] || each_of "$(cat "$siblings")"); do
            [ "$other" != "$cpu" ] || break
            place=$((place + 1))
        done
        echo "$place $cpu"
    done | sort -n -k 1,1 -k 2,2 | awk '{ printf "%s%s", (NR > 1 ? "," : ""), $2 }'
    echo
}

# The processor of a member, of those in `list`: they are shared in turn if there are too few.
cpu_of() {
    echo "$list" | tr ',' '\n' | awk -v i="$1" '{ cpu[NR - 1] = $1 } END { print cpu[i % NR] }'
}

member() { # member CPUS PROGRAM...
    cpus=$1
    shift
    [ -z "${LIBS:-}" ] || export LD_LIBRARY_PATH="$LIBS"
    set -- taskset -c "$cpus" "$@"
    [ "$in" != pool ] || set -- env LD_PRELOAD="$LIBRARY" VSHMEM_POOL="$POOL" VSHMEM_KEYS=all "$@"
    exec "$@"
}

if [ "$1" = cpus ]; then
    cpus
    exit
fi
if [ "$1" = rank ]; then # of MPI: rank LIST PROGRAM...
    list=$2 in=kernel
    shift 2
    member "$(cpu_of "${PMI_RANK:-${OMPI_COMM_WORLD_RANK:-0}}")" "$@"
fi
n=$1 way=$2 in=$3
shift 3
list=$(cpus | cut -d , -f "1-$n")
case $way in
alone) member "$list" "$@" ;;
threads) OMP_PROC_BIND=true OMP_WAIT_POLICY=active member "$list" "$@" ;;
processes)
    all=
    trap 'kill $all 2>/dev/null || true; exit 143' TERM INT HUP
    for i in $(seq 0 $((n - 1))); do
        member "$(cpu_of "$i")" "$@" &
        all="$all $!"
    done
    status=0
    for pid in $all; do
        wait "$pid" || status=$?
    done
    exit "$status"
    ;;
ranks)
    [ -z "${LIBS:-}" ] || export LD_LIBRARY_PATH="$LIBS"
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    if [ "$in" = pool ]; then
        export VSHMEM_POOL="$POOL"
        exec "$VSHMEM" mpirun --local --mpi "${MPI:-mpich}" -n "$n" -- "$0" rank "$list" "$@"
    fi
    more=
    [ "${MPI:-mpich}" != openmpi ] || more='--oversubscribe --bind-to none'
    # shellcheck disable=SC2086 # a list of words
    exec "${MPIEXEC:-mpiexec}" $more -n "$n" "$0" rank "$list" "$@"
    ;;
*)
    echo "team.sh: there is no way $way" >&2
    exit 2
    ;;
esac
