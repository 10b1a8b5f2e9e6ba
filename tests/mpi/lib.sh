# shellcheck shell=bash
# shellcheck disable=SC2154 # the library of the suite machines sets it
# What the cases share, beside the library of the suite machines.

# Between machines, UCX of one version has hundreds of programs to start: that takes time under emulation.
LIMIT=${LIMIT:-90}

# job MPI RANKS PROGRAM ARGUMENT...: runs one of our programs; words in MPIRUN are options of vshmem mpirun
job() {
    # shellcheck disable=SC2086 # a list of words
    vshmem mpirun ${MPIRUN:-} -n "$2" "$MPI_PROGRAMS/$1/$3" "${@:4}"
}

# taken: by what ranks have talked, as --verify-transport has said in $work/err
taken() { sed -n 's/.* have taken //p' "$work/err"; }

# has MPI: whether it could be had
has() {
    [ -d "$MPI_PROGRAMS/$1" ] || {
        echo "skip    $1: $(tail -n 1 "$MPI_PROGRAMS/$1.log" | cut -c1-200)"
        return 1
    }
}

# installed PROGRAM PACKAGE: whether it is there
installed() {
    command -v "$1" >/dev/null || {
        echo "skip    $1 is not installed; 'apt-get install $2' brings it"
        return 1
    }
}

# machines: their names
machines() { of_record "*[m['name'] for m in told['machines']]" | tr ' ' '\n'; }

# What jobs could leave: processes, files and listening sockets of all machines, IPC objects of the pool.
state() {
    local vm
    for vm in $(machines); do vshmem exec "$vm" -- perl "$MPI_HERE/programs/state.pl"; done
    vshmem ipcs --pool "cluster.$VSHMEM_CLUSTER" --json |
        field '[len(pool[kind]) for pool in told["pools"] for kind in ("segments", "sets", "queues")]'
}

# ours: of what is left, what is no fault of the MPI's in the variable mpi. MPICH 5 has a file in each host
# until its end, and leaves it if it is killed, on one kernel without Vshmem as well.
ours() {
    case ${mpi:-} in
    *5) grep -v 'file: .*/mpich_shm_' ;;
    *) cat ;;
    esac
}

is_as_before() { [ "$(state | ours)" = "$(ours <<<"$before")" ]; }

# need_four: four machines, for which the two of other cases make room
need_four() {
    local memory=512M
    [ -z "${MPI_FULL:-}" ] || memory=768M
    [ "$(machines 2>/dev/null | wc -l)" -ne 4 ] || return 0
    vshmem down --all
    LIMIT=300 code "four machines come up" 0 vshmem up -n 4 --memory "$memory"
}

# need_nodes [apart]: hosts that are no machines, one and two, or four of them (NODES=4): name spaces with a
# network between them. Their directory is in `nodes`, and $nodes/pool is a pool, of the size POOL_SIZE. Where
# that is not allowed, the case ends.
need_nodes() {
    if ! unshare --user --map-root-user --net true 2>"$work/err"; then
        echo "skip    name spaces of a user's own are not allowed here: $(cat "$work/err")"
        exit 0
    fi
    nodes=$(mktemp -d "$work/nodes.XXXXXX")
    "$MPI_HERE/programs/nodes.sh" up "$nodes" "$@" >"$work/nodes.said" 2>&1 &
    keeper=$!
    eventually "${NODES:-2} hosts come up" grep -qx ready "$work/nodes.said"
    code "with a pool" 0 vshmem pool create "$nodes/pool" --size "${POOL_SIZE:-256M}"
}

in_node() { "$MPI_HERE/programs/nodes.sh" in "$nodes" "$@"; }

# by_nodes WORDS...: vshmem mpirun in both, with the pool POOL, if that is set
by_nodes() {
    vshmem mpirun -host one:1,two:1 --exec "$MPI_HERE/programs/nodes.sh in $nodes {}" \
        --pool "${POOL:-$nodes/pool}" "$@"
}

end_nodes() {
    kill "$keeper"
    wait "$keeper"
}

# begin_with_nothing: to be called before jobs, of which nothing_stays says that they have left nothing
begin_with_nothing() {
    need_machines
    before=$(state)
}

nothing_stays() {
    WITHIN=15 eventually "$1, and nothing stays" is_as_before
    is_as_before || diff <(echo "$before") <(state) || true
}
