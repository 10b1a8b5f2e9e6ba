# shellcheck shell=bash
# shellcheck disable=SC2154 # lib.sh sets it
# Languages and libraries with a partitioned global address space: OpenSHMEM, Fortran's coarrays.
. "$MPI_HERE/lib.sh"
begin_with_nothing
built=$MPI_PROGRAMS/pgas

# outcome SAID COMMAND...: whether a program with coarrays says so and succeeds. By Debian 13's MPICH it may
# abort at its very end, on one kernel as well.
outcome() {
    local said
    said=$("${@:2}" 2>&1) || grep -q 'Fatal error in internal_Comm_free' <<<"$said" || return
    ! grep -q "$1" <<<"$said" || echo passed
}

mkdir -p "$built"

if installed oshcc libopenmpi-dev; then
    code "a program for OpenSHMEM is compiled" 0 \
        oshcc -Wall -Wextra -Werror -O2 "$MPI_HERE/pgas/heap.c" -o "$built/heap"
    equal "and runs in two machines" "heap: 2 PEs" "$(vshmem mpirun -n 2 "$built/heap" 2>&1)"
fi
if installed caf.mpich libcoarrays-mpich-dev && installed gfortran gfortran; then
    code "a program with coarrays is compiled" 0 caf.mpich -O2 "$MPI_HERE/pgas/images.f90" -o "$built/images"
    equal "and runs in two machines" passed \
        "$(outcome 'images: 2 images' vshmem mpirun -n 2 "$built/images")"
fi

# OpenCoarrays' own tests: a sample, or with MPI_FULL=1 all. Those that fail in one machine without Vshmem
# want more images, or what Debian's build lacks.
tests=$(echo /usr/lib/*/open-coarrays/mpich/bin/OpenCoarrays-*-tests)
chosen=(co_sum_test co_broadcast_test co_reduce_test send_array strided_get)
[ -z "${MPI_FULL:-}" ] || mapfile -t chosen < <(ls "$tests")
[ -d "$tests" ] || chosen=()
for test in "${chosen[@]}"; do
    alone=$(outcome 'Test passed' timeout 30 mpiexec.mpich -launcher fork -n 2 "$tests/$test")
    [ "$alone" = passed ] || continue
    equal "OpenCoarrays' test $test" passed "$(outcome 'Test passed' vshmem mpirun -n 2 "$tests/$test")"
done
nothing_stays "all jobs end"
