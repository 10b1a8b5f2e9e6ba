# shellcheck shell=bash
# shellcheck disable=SC2154 # lib.sh sets it
# Windows over programs' own memory, and ranks that would start others.
. "$MPI_HERE/lib.sh"
begin_with_nothing

for way in fence lock atomic post; do
    equal "mpich: one-sided, by $way" "$way: 2 ranks on 2 hosts" "$(job mpich 2 onesided $way 2>&1)"
done
# Not with atomic operations: those of Open MPI 4.1.4's osc/pt2pt hang, by the kernel's System V as well.
for way in fence lock post; do
    equal "openmpi: one-sided, by $way" "$way: 2 ranks on 2 hosts" "$(job openmpi 2 onesided $way 2>&1)"
done
# Debian's 4.0.2 can't, in one machine and without Vshmem either.
contains "mpich: ranks that can't are told so" "Error in spawn call" "$(job mpich 2 spawn 2>&1)"
nothing_stays "all jobs end"
