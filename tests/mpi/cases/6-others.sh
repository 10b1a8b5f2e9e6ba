# shellcheck shell=bash
# shellcheck disable=SC2154 # lib.sh sets it
# Other people's programs, as Debian has them: they check what they get themselves, or must give the same
# answers as in one machine.
. "$MPI_HERE/lib.sh"
begin_with_nothing
cp "$MPI_HERE"/inputs/* "$work"

if installed NPopenmpi netpipe-openmpi; then
    # -i: each byte is checked
    code "NetPIPE finds all bytes as they were sent" 0 vshmem mpirun -n 2 -C "$work" \
        NPopenmpi -i -n 2 -u 100000 -o /tmp/netpipe
    contains "and has sent messages up to the length asked for" "98305 bytes" "$(cat "$work/out")"
    vshmem exec vm0 -- rm -f /tmp/netpipe
fi

# thermodynamics WHERE...: what LAMMPS computes for each tenth step
thermodynamics() {
    vshmem mpirun -C "$work" "$@" lmp -log none -in in.lj | awk '/^Step/, /^Loop/' | grep -v Loop
}
if installed lmp lammps; then
    one=$(thermodynamics -host vm0:2 -n 2)
    equal "LAMMPS computes the same in two machines as in one" "$one" "$(thermodynamics -n 2)"
    contains "of all steps" "      50" "$one"
fi

# Two minutes under emulation.
if [ -n "${MPI_FULL:-}" ] && installed hpcc hpcc; then
    LIMIT=300 code "the HPC Challenge runs" 0 vshmem mpirun -n 2 -C "$work" hpcc
    outcome=$(vshmem exec -u root vm0 -- cat "$work/hpccoutf.txt")
    contains "with success" "Success=1" "$outcome"
    wrong='Found [1-9][0-9]* errors|with error [1-9]|[1-9][0-9]* tests completed and failed|FAILED'
    equal "and finds no number wrong" "" "$(grep -E "$wrong" <<<"$outcome")"
    vshmem exec -u root vm0 -- rm -f "$work/hpccoutf.txt"
fi

# mpi4py's own tests; a sample, or with MPI_FULL=1 all of them.
tests=(-i 'test_p2p_obj$' -i 'test_cco_obj$')
[ -z "${MPI_FULL:-}" ] || tests=(-e test_spawn)
source_of_mpi4py() { # the version that is installed; its package leaves the tests out
    local version
    version=$(/usr/bin/python3 -c 'import mpi4py; print(mpi4py.__version__)')
    [ -d "$MPI_CACHE/mpi4py-$version" ] || {
        /usr/bin/python3 -m pip download --quiet --disable-pip-version-check --no-deps --no-binary :all: \
            --dest "$MPI_CACHE" "mpi4py==$version" >"$work/pip" 2>&1 &&
            tar -C "$MPI_CACHE" -xf "$MPI_CACHE/mpi4py-$version.tar.gz"
    } || return
    tests_of_mpi4py=$MPI_CACHE/mpi4py-$version/test
}
if ! /usr/bin/python3 -c 'import mpi4py' 2>/dev/null; then
    echo "skip    mpi4py is not installed; 'apt-get install python3-mpi4py' brings it"
elif ! source_of_mpi4py; then
    echo "skip    mpi4py's tests can't be had: $(tail -n 1 "$work/pip" | cut -c1-200)"
else
    LIMIT=${MPI_FULL:+3600} LIMIT=${LIMIT:-300}
    code "mpi4py's own tests pass" 0 vshmem mpirun -n 2 /usr/bin/python3 "$tests_of_mpi4py/runtests.py" \
        --no-builddir "${tests[@]}"
    contains "on both ranks" "[1@vm1]" "$(cat "$work/out")"
    LIMIT=90
fi
nothing_stays "all jobs end"
