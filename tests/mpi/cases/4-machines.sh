# shellcheck shell=bash
# shellcheck disable=SC2154 # lib.sh sets it
# Machines that die under a job, and the back end that does.
. "$MPI_HERE/lib.sh"
begin_with_nothing

both_run() { [ "$(grep -c '^rank . is process' "$work/said")" -eq 2 ]; }

# begin MPI: a job that runs until it is ended
begin() {
    : >"$work/said"
    "$VSHMEM_BIN" mpirun -n 2 "$MPI_PROGRAMS/$1/ends" hold >"$work/said" 2>"$work/err" &
    job=$!
    eventually "$1: a job runs" both_run
}

has_ended() { ! kill -0 "$job" 2>/dev/null; }

# The launcher's machine, and the other.
for pair in mpich:vm1 openmpi:vm0; do
    IFS=: read -r mpi vm <<<"$pair"
    begin "$mpi"
    kill -KILL "$(pid_of "$vm")"
    WITHIN=6 eventually "$mpi: the job ends when $vm dies" has_ended
    kill -KILL "$job" 2>/dev/null
    code "$mpi: and fails" 125 wait "$job"
    contains "$mpi: with the machine's name" "$vm" "$(cat "$work/err")"
    code "$mpi: the machine starts anew" 0 vshmem restart "$vm"
    equal "$mpi: and the next job runs" "points: 2 ranks on 2 hosts" "$(job "$mpi" 2 points 4096 2>&1)"
    forget_sessions
    nothing_stays "$mpi: it ends"
done

# A job needs no back end once it runs: another one takes over.
begin mpich
kill -KILL "$(back_end)"
eventually "the back end is there again" back_end
code "and the job goes on" 0 kill -0 "$job"
kill -TERM "$job"
eventually "until it is ended" has_ended
nothing_stays "it ends"
