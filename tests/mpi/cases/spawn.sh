# shellcheck shell=bash
# shellcheck disable=SC2154 # lib.sh sets it
# Ranks that start others, in hosts that are no machines: name spaces with a network and a pool between them.
. "$MPI_HERE/lib.sh"

# spawn MPI [HOST]: two ranks, each in a host, start two more, on that host or as the launcher chooses
spawn() { by_nodes -n 2 "$MPI_PROGRAMS/$1/spawn" "${@:2}" 2>"$work/err"; }

need_nodes

# Debian's can't, in one host and without Vshmem either. 4.2.1 may crash before a rank has said all of it, or
# end without a word: vshmem mpirun has one then.
if spawn mpich >"$work/out"; then
    failed "mpich: ranks that can't are told so" "the job succeeds"
else
    cat "$work/err" >>"$work/out"
    holds "mpich: ranks that can't are told so" test -s "$work/out"
fi

for host in one two; do
    equal "openmpi: children in $host" "spawn: 2 ranks on 2 hosts" "$(spawn openmpi $host)"
done
if installed orted openmpi-bin >/dev/null; then
    LIMIT=60 code "openmpi: those in several hosts don't hang" 1 spawn openmpi
    contains "openmpi: and are told that they don't know each other" "PML add procs failed" \
        "$(cat "$work/err")"
fi

if [ -n "${MPI_FULL:-}" ]; then
    export LIMIT=30
    ! has mpich5 || equal "mpich5: children in both hosts" "spawn: 2 ranks on 2 hosts" "$(spawn mpich5)"
    ! has mpich5 || equal "mpich5: in one" "spawn: 2 ranks on 2 hosts" "$(spawn mpich5 two)"
    if has openmpi5; then
        unsteady equal "openmpi5: children in both hosts" "spawn: 2 ranks on 2 hosts" "$(spawn openmpi5)"
        unsteady equal "openmpi5: in one" "spawn: 2 ranks on 2 hosts" "$(spawn openmpi5 two)"
    fi
fi
end_nodes
