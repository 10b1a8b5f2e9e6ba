# shellcheck shell=bash
# shellcheck disable=SC2154 # lib.sh sets it
# How jobs end of which a rank fails, or is killed, or the launcher, or `vshmem mpirun`.
. "$MPI_HERE/lib.sh"
begin_with_nothing

both_run() { [ "$(grep -c '^rank . is process' "$work/said")" -eq 2 ]; }

# hold MPI: a job that runs until it is ended; its processes' numbers are in `pids`
hold() {
    : >"$work/said"
    # A shell has its background commands ignore SIGINT.
    env --default-signal=INT "$VSHMEM_BIN" mpirun -n 2 "$MPI_PROGRAMS/$1/ends" hold \
        >"$work/said" 2>"$work/err" &
    job=$!
    eventually "$1: a job runs" both_run
    mapfile -t pids < <(sort "$work/said" | sed -n 's/.* process \([0-9]*\) of .*/\1/p')
}

no_rank() { ! vshmem exec vm0 -- pgrep -f /ends && ! vshmem exec vm1 -- pgrep -f /ends; }

# ended WITHIN: the exit code of the job, which must end within so many seconds
ended() {
    local begun=$SECONDS
    until ! kill -0 "$job" 2>/dev/null; do
        [ $((SECONDS - begun)) -lt $(($1 * slow)) ] || return 99
        sleep 0.1
    done
    wait "$job"
}

# fails WHAT COMMAND...: it ends by itself, with an exit code that says so. MPICH's launcher has several, by
# chance, for a rank that a signal has ended in another host than its own.
fails() {
    "${@:2}" >"$work/out" 2>&1
    case $? in
    0 | 99 | 124) failed "$1" "$(tail -n 5 "$work/out")" ;;
    *) passed "$1" ;;
    esac
}

for mpi in mpich openmpi; do
    code "$mpi: a rank's exit code is the job's" 7 job $mpi 2 ends return
    holds "$mpi: there is a sentence about it" grep -q 'ended with 7\|exit code' "$work/out"
    code "$mpi: also that of MPI_Abort" 5 job $mpi 2 ends abort
    fails "$mpi: a rank that crashes ends the job" job $mpi 2 ends crash
    # Debian's MPICH 4.0.2 waits for ever then if its ranks are in several hosts.
    [ $mpi = mpich ] || code "$mpi: and one that ends without a word" 6 job $mpi 2 ends exit
    nothing_stays "$mpi: these jobs end"

    hold $mpi
    vshmem exec vm1 -- kill -KILL "${pids[1]}"
    fails "$mpi: a rank that is killed ends the job" ended 15
    nothing_stays "$mpi: it ends"

    for signal in INT:130 TERM:143; do
        hold $mpi
        kill -s "${signal%:*}" "$job"
        code "$mpi: SIG${signal%:*} ends the job, and it says so" "${signal#*:}" ended 15
        nothing_stays "$mpi: it ends"
    done

    hold $mpi
    # Open MPI 5's mpiexec becomes PRRTE's.
    vshmem exec vm0 -- pkill -KILL -f '^[^ ]*/(mpiexec|prterun)'
    code "$mpi: a launcher that is killed ends the job" 137 ended 15
    nothing_stays "$mpi: it ends"

    hold $mpi
    kill -KILL "$job"
    wait "$job" 2>/dev/null
    WITHIN=15 eventually "$mpi: a job ends whose vshmem mpirun is killed" no_rank
    nothing_stays "$mpi: it ends"
done
