# shellcheck shell=bash
# shellcheck disable=SC2154 # lib.sh sets it
# Languages and libraries with a partitioned global address space: OpenSHMEM, Fortran's coarrays.
. "$MPI_HERE/lib.sh"
begin_with_nothing
built=$MPI_PROGRAMS/pgas
mkdir -p "$built"

if installed oshcc libopenmpi-dev; then
    code "a program for OpenSHMEM is compiled" 0 \
        oshcc -Wall -Wextra -Werror -O2 "$MPI_HERE/pgas/heap.c" -o "$built/heap"
    equal "and runs in two machines" "heap: 2 PEs" "$(vshmem mpirun -n 2 "$built/heap" 2>&1)"
fi
if installed caf.mpich libcoarrays-mpich-dev && installed gfortran gfortran; then
    code "a program with coarrays is compiled" 0 caf.mpich -O2 "$MPI_HERE/pgas/images.f90" -o "$built/images"
    # Debian 13's aborts when it ends (MPI_Comm_free), on one kernel as well.
    own=0
    timeout 30 mpiexec.mpich -launcher fork -n 2 "$built/images" >"$work/own" 2>&1 || own=$?
    code "and ends in two machines as on one kernel" "$own" vshmem mpirun -n 2 "$built/images"
    contains "with the same result" "images: 2 images" "$(cat "$work/out")"
fi

# OpenCoarrays' own tests: a sample, or with MPI_FULL=1 all. Those that fail in one machine without Vshmem
# want more images, or what Debian's build lacks.
outcome() { # outcome COMMAND...: whether a test says that it has passed
    local said
    said=$("$@" 2>&1) && grep -q 'Test passed' <<<"$said" && echo passed
}
tests=$(echo /usr/lib/*/open-coarrays/mpich/bin/OpenCoarrays-*-tests)
chosen=(co_sum_test co_broadcast_test co_reduce_test send_array strided_get)
[ -z "${MPI_FULL:-}" ] || mapfile -t chosen < <(ls "$tests")
[ -d "$tests" ] || chosen=()
for test in "${chosen[@]}"; do
    alone=$(outcome timeout 30 mpiexec.mpich -launcher fork -n 2 "$tests/$test")
    [ "$alone" = passed ] || continue
    equal "OpenCoarrays' test $test" passed "$(outcome vshmem mpirun -n 2 "$tests/$test")"
done
nothing_stays "all jobs end"
