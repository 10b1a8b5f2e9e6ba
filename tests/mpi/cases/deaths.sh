# shellcheck shell=bash
# shellcheck disable=SC2154 # lib.sh sets it
# Machines that die under a job of four, and the back end that does.
. "$MPI_HERE/lib.sh"
need_four
begin_with_nothing

all_run() { [ "$(grep -c '^rank . is process' "$work/said")" -eq 4 ]; }

# begin MPI: a job that runs until it is ended
begin() {
    : >"$work/said"
    "$VSHMEM_BIN" mpirun -n 4 "$MPI_PROGRAMS/$1/ends" hold >"$work/said" 2>"$work/err" &
    job=$!
    eventually "$1: a job runs" all_run
}

has_ended() { ! kill -0 "$job" 2>/dev/null; }

# One of the ranks' only, and the first, where launcher and relay run and through which the others reach each
# other.
deaths=(mpich:vm2 openmpi:vm0)
[ -z "${MPI_FULL:-}" ] ||
    deaths+=(mpich:vm0 openmpi:vm2 mpich5:vm2 mpich5:vm0 openmpi5:vm2 openmpi5:vm0)
for pair in "${deaths[@]}"; do
    IFS=: read -r mpi vm <<<"$pair"
    has "$mpi" || continue
    begin "$mpi"
    kill -KILL "$(pid_of "$vm")"
    WITHIN=6 eventually "$mpi: the job ends when $vm dies" has_ended
    kill -KILL "$job" 2>/dev/null
    code "$mpi: and fails" 125 wait "$job"
    contains "$mpi: with the machine's name" "$vm" "$(cat "$work/err")"
    code "$mpi: the machine that died starts anew" 0 vshmem restart
    equal "$mpi: and the next job runs on all" "points: 4 ranks on 4 hosts" \
        "$(MPIRUN=--verify-transport job "$mpi" 4 points 4096 2>"$work/err")"
    equal "$mpi: by the pool alone" "sysv" "$(taken)"
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
