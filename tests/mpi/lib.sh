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

# What jobs could leave: processes, files and listening sockets of both machines, IPC objects of the pool.
state() {
    local vm
    for vm in vm0 vm1; do vshmem exec "$vm" -- perl "$MPI_HERE/programs/state.pl"; done
    vshmem ipcs --pool "cluster.$VSHMEM_CLUSTER" --json |
        field '[len(pool[kind]) for pool in told["pools"] for kind in ("segments", "sets", "queues")]'
}

is_as_before() { [ "$(state)" = "$before" ]; }

# begin_with_nothing: to be called before jobs, of which nothing_stays says that they have left nothing
begin_with_nothing() {
    need_machines
    before=$(state)
}

nothing_stays() {
    WITHIN=15 eventually "$1, and nothing stays" is_as_before
    is_as_before || diff <(echo "$before") <(state) || true
}

# Open MPI's session directories stay wherever its launcher is killed.
forget_sessions() {
    local vm
    for vm in vm0 vm1; do vshmem exec -u root $vm -- sh -c 'rm -rf /tmp/ompi.*'; done
}
