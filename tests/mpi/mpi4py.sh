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
    mpi4py_variables=()
    if [ "$1" = openmpi ]; then
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
