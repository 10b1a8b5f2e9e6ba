# shellcheck shell=bash
# shellcheck disable=SC2154 # lib.sh sets it
# mpi4py's own tests on each MPI: Debian's mpi4py for Debian's Open MPI, and PyPI's for the others.

NEWEST_MPI4PY=4.1.2

# once DIRECTORY PIP...: has pip bring something into the cache, unless it is there
once() {
    [ -d "$1" ] || /usr/bin/python3 -m pip "$2" --quiet --disable-pip-version-check --no-deps "${@:3}" \
        >"$work/pip" 2>&1
}

# source_of_mpi4py VERSION: its packages leave the tests out
source_of_mpi4py() {
    local into=$MPI_CACHE/mpi4py-$1
    once "$into" download --no-binary :all: --dest "$MPI_CACHE" "mpi4py==$1" || return
    [ -d "$into" ] || tar -C "$MPI_CACHE" -xf "$into.tar.gz"
}

# Runs on all MPIs. Debian's MPICH has another name for the library that it looks for.
wheel_of_mpi4py() {
    local into=$MPI_CACHE/mpi4py-wheel-$NEWEST_MPI4PY
    once "$into" install --target "$into" "mpi4py==$NEWEST_MPI4PY" || return
    ln -sf "$(echo /usr/lib/*/libmpich.so.12)" "$into/libmpi.so.12"
}

# choose_mpi4py MPI: sets `mpi4py_tests`, the program of its tests, and `mpi4py_variables`, by which Python
# finds mpi4py and that MPI
choose_mpi4py() {
    local version=$NEWEST_MPI4PY wheel=$MPI_CACHE/mpi4py-wheel-$NEWEST_MPI4PY abi=mpich libraries
    if [ "$1" = openmpi ]; then
        # Its own way to open a file wants a second one beside it, which other users can't open.
        mpi4py_variables=(OMPI_MCA_io=romio321)
        # It has no windows between hosts for MPI_THREAD_MULTIPLE.
        mpi4py_variables+=(MPI4PY_RC_THREAD_LEVEL=serialized)
        version=$(/usr/bin/python3 -c 'import mpi4py; print(mpi4py.__version__)' 2>"$work/pip") || return
    else
        wheel_of_mpi4py || return
        case $1 in
        mpich) libraries=$wheel ;;
        mpich5) libraries=$(echo "$MPI_CACHE"/mpich-*/lib) ;;
        openmpi5) libraries=$(echo "$MPI_CACHE"/openmpi-*/lib) abi=openmpi ;;
        esac
        mpi4py_variables=("PYTHONPATH=$wheel" "MPI4PY_MPIABI=$abi" "LD_LIBRARY_PATH=$libraries")
    fi
    source_of_mpi4py "$version" || return
    mpi4py_tests=$MPI_CACHE/mpi4py-$version/test/runtests.py
}

# mpi4py MPI RANKS CHOICE...: those of its own tests that these options of runtests.py choose. Without those
# of files in all ranks, which hang where each host has a /tmp of its own.
mpi4py() {
    local limit=300 variable options=()
    [ -z "${MPI_FULL:-}" ] || limit=3600
    choose_mpi4py "$1" || {
        echo "skip    mpi4py's tests can't be had for $1: $(tail -n 1 "$work/pip" | cut -c1-200)"
        return
    }
    for variable in "${mpi4py_variables[@]}"; do options+=(-x "$variable"); done
    # shellcheck disable=SC2086 # a list of words
    LIMIT=$limit code "$1: mpi4py's own tests pass, ${*:3}" 0 vshmem mpirun ${MPIRUN:-} -n "$2" \
        "${options[@]}" /usr/bin/python3 "$mpi4py_tests" --no-builddir -e test_io "${@:3}"
    contains "$1: on all $2 ranks" "[$(($2 - 1))@vm$(($2 - 1))]" "$(cat "$work/out")"
}

# on_one_kernel MPI: the words that start four ranks on this host, by that MPI's own transports. Those of
# Debian's MPICH would never leave a processor to each other. Windows of Debian's Open MPI are those that it
# has between hosts, for it has none of all kinds on one.
on_one_kernel() {
    local yielding=(LD_PRELOAD="$(dirname "$VSHMEM_LIB")/libvshmem_ucx.so" VSHMEM_UCX_YIELD=1)
    local root=(env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1)
    case $1 in
    mpich) echo env "${yielding[@]}" mpiexec.mpich -launcher fork -n 4 ;;
    mpich5) echo "$MPI_CACHE"/mpich-*/bin/mpiexec -launcher fork -n 4 ;;
    openmpi) echo "${root[@]}" OMPI_MCA_osc=pt2pt mpiexec.openmpi --oversubscribe -n 4 ;;
    openmpi5) echo "${root[@]}" "$MPI_CACHE"/openmpi-*/bin/mpiexec --oversubscribe -n 4 ;;
    esac
}

# in_hosts WHERE: sets `words`, which start ranks in four hosts: name spaces, or machines
in_hosts() {
    words=("$VSHMEM_BIN" mpirun)
    [ "$1" = machines ] || words+=(-host "one:1,two:1,three:1,four:1" --pool "$nodes/pool"
        --exec "$MPI_HERE/programs/nodes.sh in $nodes {}")
}

# whole_mpi4py MPI WHERE...: all of its own tests by four ranks, file by file, on one kernel and in four such
# hosts. Each must come to the same in each rank.
whole_mpi4py() {
    local record=$MPI_FILES/mpi4py/$1 parts=$MPI_HERE/mpi4py/parts.py python=/usr/bin/python3
    local but=(--but "$MPI_HERE/mpi4py/exceptions.txt") variable where options=() chosen words
    choose_mpi4py "$1" || {
        echo "skip    mpi4py's tests can't be had for $1: $(tail -n 1 "$work/pip" | cut -c1-200)"
        return
    }
    for variable in "${mpi4py_variables[@]}"; do options+=(-x "$variable"); done
    chosen=(--tests "$(dirname "$mpi4py_tests")" --ranks 4)
    chosen+=(--budget "${MPI4PY_SECONDS:-300}" --files "${MPI4PY_FILES:-}" ${MPI4PY_RESUME:+--resume})
    mkdir -p "$record"
    read -ra words <<<"$(on_one_kernel "$1")"
    holds "$1: mpi4py's own tests run on one kernel" $python "$parts" run "${chosen[@]}" "${but[@]}" "$1" \
        "$record/one" env "${mpi4py_variables[@]}" "${words[@]}" $python
    for where in "${@:2}"; do
        in_hosts "$where"
        holds "$1: and in four $where" $python "$parts" run "${chosen[@]}" "${but[@]}" "$1,$where" \
            "$record/$where" "${words[@]}" -n 4 "${options[@]}" $python
        holds "$1: and come to the same" $python "$parts" compare "${but[@]}" "$1,$where" "$record/one" \
            "$record/$where"
    done
}
