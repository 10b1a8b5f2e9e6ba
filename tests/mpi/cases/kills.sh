# shellcheck shell=bash
# shellcheck disable=SC2154 # lib.sh sets it
# Jobs of which anything is killed at some moment of their start, their run or their end. Each ends within ten
# seconds, with an exit code and a sentence, and nothing stays. Their hosts are name spaces. With MPI_FULL=1
# all MPIs are tried, MPI_KILLS (10) times. MPI_SEED chooses the moments.
. "$MPI_HERE/lib.sh"

# What is killed: its name, the host, the signal, and what its command line begins with. "All" comes last:
# what it leaves goes with the next job that starts in both hosts.
victims=(
    "rank here|one|KILL|\S*/(ends|points) "
    "rank there|two|KILL|\S*/(ends|points) "
    "daemon there|two|KILL|\S*/(hydra_pmi_proxy|orted|prted) "
    "launcher|one|KILL|\S*/(mpiexec|mpirun|prterun)"
    "relay|one|KILL|\S*vshmem rsh --relay"
    "remote shell|one|KILL|\S*vshmem rsh (-x )?two "
    "agent here|one|KILL|\S*vshmem rsh --agent"
    "agent there|two|KILL|\S*vshmem rsh --agent"
    "agent's child there|two|KILL|vshmem-commands"
    "mpirun||KILL|"
    "mpirun||TERM|"
    "mpirun||INT|"
    "all here|one|KILL|all"
    "all there|two|KILL|all"
)

rounds=${MPI_KILLS:-1} RANDOM=${MPI_SEED:-1}
[ -z "${MPI_FULL:-}" ] || rounds=${MPI_KILLS:-10} RANDOM=${MPI_SEED:-$$}

start_job() { # start_job MPI PROGRAM ARGUMENT
    # A shell has its background commands ignore SIGINT.
    setsid env --default-signal=INT "$VSHMEM_BIN" mpirun -host one:1,two:1 \
        --exec "$MPI_HERE/programs/nodes.sh in $nodes {}" --pool "$nodes/pool" \
        -n 2 "$MPI_PROGRAMS/$1/$2" "$3" >"$work/said" 2>"$work/err" &
    job=$!
}

job_state() {
    local host
    for host in one two; do
        in_node $host perl "$MPI_HERE/programs/state.pl" "$nodes/$host.files/tmp" /dev/shm | sed "s/^/$host /"
    done
    [ -z "${job:-}" ] || pgrep -s "$job" -a
    "$VSHMEM_BIN" check "$nodes/pool" >/dev/null || [ $? -eq 1 ] || echo "the pool is damaged"
    "$VSHMEM_BIN" ipcs --pool "$nodes/pool" --json |
        field '[len(pool[kind]) for pool in told["pools"] for kind in ("segments", "sets", "queues")]'
}

# by_itself WITHIN: the exit code of the job, which must end within so many seconds
by_itself() {
    local begun=$SECONDS
    while kill -0 "$job" 2>/dev/null; do
        [ $((SECONDS - begun)) -lt $(($1 * slow)) ] || return 99
        sleep 0.05
    done
    wait "$job"
}

# kill_at SECONDS HOST SIGNAL PATTERN: kills that, so long after it was begun; says of how many processes
kill_at() {
    if [ -z "$2" ]; then
        sleep "$1"
        kill -s "$3" "$job" 2>/dev/null && echo 1
    else
        in_node "$2" perl "$MPI_HERE/programs/strike.pl" "$nodes/over" "$3" "$1" "$4"
    fi
}

# UCX makes a private segment, attaches it, and has it removed at its last detach. A rank that dies in between
# leaves it, in the kernel's System V as well. That is rare: at most one kill in ten has done so.
remove_orphans() {
    local id
    for id in $("$VSHMEM_BIN" ipcs --pool "$nodes/pool" --json | field '*[s["id"]
        for p in told["pools"] for s in p["segments"] if s["key"] == 0 and s["attached"] == 0]'); do
        "$VSHMEM_BIN" ipcrm --pool "$nodes/pool" -m "$id" && orphans=$((orphans + 1))
    done
}

# is_clean VICTIM: nothing is left of the job. Where even what cleans up was killed, the next job does that.
is_clean() {
    remove_orphans
    left=$(job_state | ours)
    case $1 in all*) left=$(grep -v 'file: .*/vshmem-job\.' <<<"$left") ;; esac
    [ "$left" = "$before" ]
}

# one_kill MPI LENGTH VICTIM: of a job that takes so many seconds
one_kill() {
    local name host signal pattern program first=0 chance=$RANDOM moment
    local hit within code what wrong="" left ended
    IFS='|' read -r name host signal pattern <<<"$3"
    # Debian's MPICH waits for ever for a remote shell that has not even asked, and for daemons of other hosts
    # that answer when a rank has died already.
    case $1:$name in
    *:"remote shell") first=0.3 ;;
    mpich:"rank here") first=0.02 ;;
    esac
    moment=$(awk -v n="$2" -v r="$chance" -v f=$first 'BEGIN { printf "%.3f", f + 0.5 * n * r / 32768 }')
    [ "$pattern" = all ] || pattern="^$pattern"
    rm -f "$nodes/over"
    # Three of four run until they are killed.
    program=(ends hold)
    [ $((chance % 4)) -ne 0 ] || program=(points 4096)
    start_job "$1" "${program[@]}"
    kill_at "$moment" "$host" "$signal" "$pattern" >"$work/hit" 2>&1 &
    hit=$!
    # Not before that has its time begun.
    while kill -0 $hit 2>/dev/null && kill -0 "$job" 2>/dev/null; do sleep 0.05; done
    : >"$nodes/over"
    wait $hit
    within=10
    if ! grep -q 1 "$work/hit"; then
        # What was not there yet, or was over, is no reason to hurry.
        within=60
        [ "${program[0]}" != ends ] || kill -TERM "$job"
    fi
    by_itself $within 2>/dev/null
    code=$?
    what="$1: $name, SIG$signal after $moment s, hits $(tr '\n' ' ' <"$work/hit")and the job ends with $code"
    case $code:$name in
    0:*) grep -q '^points: 2 ranks' "$work/said" || wrong="it says 0, and did not run to its end" ;;
    99:*)
        wrong="it has not ended within $within s: $(job_state)"
        kill -KILL "$job"
        ;;
    # Whoever signals it knows.
    143:* | *:mpirun) [ "$code" -gt 128 ] || wrong="that is not the signal" ;;
    *) [ -s "$work/err" ] || wrong="it does not say why" ;;
    esac
    ended=$SECONDS
    until is_clean "$name" || [ $((SECONDS - ended)) -gt $((5 * slow)) ]; do sleep 0.1; done
    if [ -z "$wrong" ] && is_clean "$name"; then
        passed "$what"
    else
        failed "$what" "$wrong" "$(diff <(echo "$before") <(echo "$left"))" "$(tail -n 20 "$work/err")"
    fi
}

need_nodes apart
before=$(job_state)
orphans=0 kills=0

mpis=(mpich openmpi)
[ -z "${MPI_FULL:-}" ] || mpis+=(mpich5 openmpi5)
for mpi in "${mpis[@]}"; do
    has "$mpi" || continue
    begun=$(date +%s.%N)
    start_job "$mpi" points 4096
    code "$mpi: a job runs" 0 wait "$job"
    length=$(awk -v b="$begun" -v e="$(date +%s.%N)" 'BEGIN { print e - b }')
    for _ in $(seq "$rounds"); do
        for victim in "${victims[@]}"; do
            one_kill "$mpi" "$length" "$victim"
            kills=$((kills + 1))
        done
    done
    start_job "$mpi" points 4096
    code "$mpi: and the next job runs" 0 wait "$job"
    WITHIN=5 eventually "$mpi: and nothing stays" is_clean job
done
holds "few ranks leave what UCX was about to remove ($orphans)" [ $((10 * orphans)) -le $kills ]
end_nodes
