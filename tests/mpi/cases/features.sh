# shellcheck shell=bash
# shellcheck disable=SC2154 # lib.sh sets it
# What programs ask of an MPI beside messages, collectives and windows: two ranks in each of two machines.
. "$MPI_HERE/lib.sh"
# shellcheck disable=SC2034 # for the function vshmem
LIMIT=300
begin_with_nothing

# halves MPI RANKS PROGRAM ARGUMENT...: a job with half of its ranks in each of two machines, of which other
# cases may have left four
halves() { MPIRUN="-host vm0:$(($2 / 2)),vm1:$(($2 / 2))" job "$@"; }

# same MPI RANKS PROGRAM ARGUMENT...: what the program says of itself if it finds nothing wrong
same() {
    equal "$1: ${*:3}" "$3: $2 ranks on 2 hosts" "$(halves "$@" 2>"$work/err" || tail "$work/err")"
}

# met MPI ARGUMENT...: ranks find each other by a port. Open MPI 5 has a launcher that may crash after that,
# without Vshmem as well.
met() {
    equal "$1: connect ${*:2}" "connect: 2 ranks on 2 hosts" "$(halves "$1" 2 connect "${@:2}" 2>"$work/err")"
}

same mpich 4 features hosts grid types threads flood
same openmpi 4 features hosts grid types threads
same mpich 4 files "$MPI_FILES/all" ordered
rm -f "$MPI_FILES"/all*

# Ports: Debian's MPICH has none with UCX, and 4.2.1's launcher then waits for the other host for ever, on one
# kernel as well.
same openmpi 2 connect named here
contains "mpich: ranks that can't open a port are told so" "not supported with ucx" \
    "$(LIMIT=20 halves mpich 2 connect inside 2>&1)"

# Two jobs at once, in one pool.
halves mpich 2 points 65536 >"$work/first" 2>&1 &
first=$!
same openmpi 2 points 65536
wait $first
equal "and mpich at the same time" "points: 2 ranks on 2 hosts" "$(cat "$work/first")"

if [ -n "${MPI_FULL:-}" ]; then
    for mpi in mpich5 openmpi5; do
        has $mpi || continue
        same $mpi 4 features hosts grid types threads flood
        met $mpi inside
        met $mpi named here
    done
    ! has mpich5 || same mpich5 4 files "$MPI_FILES/all" ordered
    ! has mpich5 || same mpich5 2 sessions 2
    same openmpi 4 features flood
    same mpich 2 features count
    same mpich 2 sessions
fi
nothing_stays "all jobs end"
