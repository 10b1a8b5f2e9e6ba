# shellcheck shell=bash
# shellcheck disable=SC2154 # lib.sh sets it
# Windows over programs' own memory.
. "$MPI_HERE/lib.sh"
begin_with_nothing

for way in fence lock atomic post; do
    equal "mpich: one-sided, by $way" "$way: 2 ranks on 2 hosts" "$(job mpich 2 onesided $way 2>&1)"
done
# Not with atomic operations: those of Open MPI 4.1.4's osc/pt2pt hang, by the kernel's System V as well.
for way in fence lock post; do
    equal "openmpi: one-sided, by $way" "$way: 2 ranks on 2 hosts" "$(job openmpi 2 onesided $way 2>&1)"
done
nothing_stays "all jobs end"
