# shellcheck shell=bash
# What the cases share. Sourced by run.sh.
set -u

work=$MACHINES_WORK
slow=${VSHMEM_TEST_SLOW:-1}
# shellcheck disable=SC2034 # for checks.sh
patience=30
# What runs in machines: of all suites, and of this one.
# shellcheck disable=SC2034 # for the cases
common=$MACHINES_ROOT/tests/lib/programs
programs=$MACHINES_ROOT/tests/machines/programs
# shellcheck source=tests/lib/checks.sh
. "$MACHINES_ROOT/tests/lib/checks.sh"
# shellcheck source=tests/lib/blocks.sh
. "$MACHINES_ROOT/tests/lib/blocks.sh"
# shellcheck source=tests/lib/modules.sh
. "$MACHINES_ROOT/tests/lib/modules.sh"

# The command, which must not take for ever. Machines see the tests and what the cases write, boot
# VSHMEM_TEST_KERNEL, if it is set, and are started with the options VSHMEM_TEST_UP. Where everything is slow,
# VSHMEM_TEST_SLOW (1) says how many times longer it may take.
vshmem() {
    if [ "$1" = up ]; then
        set -- "$@" --share "$work" --share "$MACHINES_ROOT/tests"
        [ ! -d "$MACHINES_TARGET" ] || set -- "$@" --share "$MACHINES_TARGET"
        [ -z "${VSHMEM_TEST_KERNEL:-}" ] || set -- "$@" --kernel "$VSHMEM_TEST_KERNEL"
        # shellcheck disable=SC2086 # a list of words
        case " $* " in
        *" --accel "*) ;;
        *) set -- "$@" ${VSHMEM_TEST_UP:-} ;;
        esac
    fi
    case " $* " in
    *" -- "*) ;; # what a machine's programs print is their own
    *" --json "*)
        in_shape "$@"
        return
        ;;
    esac
    timeout --kill-after=10 $((${LIMIT:-120} * slow)) "$VSHMEM_BIN" "$@"
}

# on_host COMMAND...: a program of the host in the cluster's pool, within LIMIT (60) seconds
on_host() {
    LD_PRELOAD=$VSHMEM_LIB VSHMEM_POOL=cluster.$VSHMEM_CLUSTER timeout -k 1 $((${LIMIT:-60} * slow)) "$@"
}

# The same with --json, whose output must have the shape that its schema says.
in_shape() {
    local document=$1 status=0 said
    case $document in pool | template) document=$document-ls ;; esac
    said=$(timeout --kill-after=10 $((${LIMIT:-120} * slow)) "$VSHMEM_BIN" "$@") || status=$?
    if [ -n "$said" ]; then
        /usr/bin/python3 "$MACHINES_ROOT/tests/schema.py" "$document" <<<"$said" ||
            failed "vshmem $* prints what vshmem schema $document says" "$said" >&2
        printf '%s\n' "$said"
    fi
    return "$status"
}

# A copy of what machines boot from, for another user, who has it in that directory.
copy_cache() {
    local part
    mkdir -p "$1/vshmem/kmod"
    for part in accel kernels kmod/modules unpacked; do
        cp -r "${XDG_CACHE_HOME:-$HOME/.cache}/vshmem/$part" "$1/vshmem/$part" 2>/dev/null || true
    done
}

# on_terminal STEP... -- COMMAND...: what terminal.py says, then the exit code
on_terminal() {
    /usr/bin/python3 "$programs/terminal.py" "$@" 2>&1
    echo "code $?"
}

# As a user who has installed Vshmem: in a directory NAME of the user's own, with the programs in PATH.
as_user_in() {
    mkdir -p "$work/$1" "$work/installed"
    ln -sf "$VSHMEM_BIN" "$work/installed/vshmem"
    ln -sf "$(dirname "$VSHMEM_BIN")/vshmem-place" "$work/installed/vshmem-place"
    ln -sf "$VSHMEM_LIB" "$work/installed/libvshmem.so.1"
    export PATH="$work/installed:$PATH" LD_LIBRARY_PATH="$work/installed"
    cd "$work/$1" || exit 1
}

# types FILE [SCRIPT]: each line of a block of a page, as a user types it, with the names that sed's SCRIPT
# replaces: it succeeds, and prints what the page says. What goes on until the user ends it is ended.
types() {
    local line command
    sed "${2:-}" "$1" >"$work/lines"
    while IFS= read -r line <&3; do
        command=$(typed "$line")
        case $command in
        "" | \#*) continue ;;
        "vshmem shell"*) contains "$command" "code 0" "$(on_terminal 'send:exit\n' -- bash -c "$command")" ;;
        "vshmem top"*) contains "$command" "code 0" "$(on_terminal wait:POOL send:q -- bash -c "$command")" ;;
        *--watch*)
            contains "$command" "code 0" "$(on_terminal run:"sleep 2" 'send:\x03' -- bash -c "$command")"
            ;;
        *) code "$command" 0 timeout --kill-after=10 $((${LIMIT:-120} * slow)) bash -c "$command" ;;
        esac
        ! said=$(prints "$line") || equal "which prints what the page says" "$said" "$(cat "$work/out")"
    done 3<"$work/lines"
}

# screen FILE [SCRIPT]: a block that begins with `$ COMMAND` has what the command prints
screen() {
    local command
    sed "${2:-}" "$1" >"$work/screen"
    command=$(sed -n '1s/^\$ //p' "$work/screen")
    equal "$command" "$(sed 1d "$work/screen")" \
        "$(timeout --kill-after=10 $((${LIMIT:-120} * slow)) bash -c "$command" 2>&1)"
}

# Two machines that the cases share; booted by whichever needs them first.
need_machines() {
    if ! vshmem ps | grep -q "^$VSHMEM_CLUSTER .*running"; then
        if ! LIMIT=300 vshmem up -n 2 >"$work/up" 2>&1; then
            failed "two machines come up" "$(cat "$work/up")"
            exit 1
        fi
        passed "two machines come up: $(tail -n 1 "$work/up")"
        echo "        machines boot Linux $(vshmem exec vm0 -- uname -r)"
    fi
}

# The programs of ours that machines run are built, unless VSHMEM_TEST_BUILT says that they are.
need_helpers() {
    [ -n "${VSHMEM_TEST_BUILT:-}" ] || "$MACHINES_ROOT/scripts/build.sh" helpers >"$work/build" 2>&1 ||
        cat "$work/build"
}

# field EXPRESSIONS: in Python, of the JSON that comes in, which is called `told`
field() {
    /usr/bin/python3 "$programs/field.py" "$1"
}

# of_record EXPRESSION: of what is recorded of our cluster
of_record() {
    field "$1" <"$XDG_RUNTIME_DIR/vshmem/$VSHMEM_CLUSTER/cluster.json"
}

# pid_of VM: of a machine's QEMU
pid_of() {
    of_record "*[m['runs']['pid'] for m in told['machines'] if m['name'] == '$1']"
}

# processor_of VM: the thread of a machine's first virtual core
processor_of() {
    grep -l '^CPU 0/' "/proc/$(pid_of "$1")"/task/*/comm | cut -d / -f 5
}

# time_of PID...: seconds that processes, or threads as PID/task/TID, have had of processors
time_of() {
    local each
    for each; do
        sed 's/.*) //' "/proc/$each/stat"
    done | awk -v hz="$(getconf CLK_TCK)" '{ n += $12 + $13 } END { print n / hz }'
}

# in_pool VM COMMAND...: one process of a machine, on the pool $pool
in_pool() {
    vshmem run --vm "$1" -n 1 --no-prefix -e VSHMEM_POOL="${pool:?}" -- "${@:2}"
}

# The back end's process.
back_end() {
    vshmem agent --status --json | field 'told["pid"]'
}

# monitor VM ORDER...: tells a machine's QEMU; its last answer
monitor() {
    /usr/bin/python3 "$programs/qmp.py" "$XDG_RUNTIME_DIR/vshmem/$VSHMEM_CLUSTER/$1/qmp.sock" "${@:2}"
}

# waits_in VM: whether a process of the machine waits in our cluster's pool
waits_in() {
    vshmem ipcs --waiters --pool "cluster.$VSHMEM_CLUSTER" | sed -n '/^Waiting threads/,$p' | grep -q "@$1 "
}

# rings VM: how often the machine's processors were interrupted by a ring
rings() {
    vshmem exec -u root "$1" -- awk '
        /vshmem/ { for (i = 2; i <= NF && $i ~ /^[0-9]+$/; i++) n += $i }
        END { print n + 0 }' /proc/interrupts
}

# members_of POOL: a pool's members by name, and whether they live
members_of() {
    vshmem ipcs --pool "$1" --json |
        field 'sorted((m["name"], m["alive"]) for pool in told["pools"] for m in pool["members"])'
}

# nothing_left WHAT: no process, no socket, no pool of our clusters
nothing_left() {
    local left
    left=$(
        pgrep -a -f "^qemu-system-x86_64 -name vshmem-$VSHMEM_CLUSTER" || true
        find "$XDG_RUNTIME_DIR" -mindepth 1 | but_of_others
        find /dev/shm -maxdepth 2 -path "/dev/shm/vshmem.$(id -u)/cluster.$VSHMEM_CLUSTER*"
    )
    equal "$1" "" "$left"
}

# Without what belongs to machines that other cases share, if a case has a cluster of its own beside them.
but_of_others() {
    local shared=${cluster:-$VSHMEM_CLUSTER}
    if [ "$shared" = "$VSHMEM_CLUSTER" ] || [ ! -e "$XDG_RUNTIME_DIR/vshmem/$shared" ]; then
        cat
    else
        grep -v -e '/vshmem$' -e "/vshmem/${shared}\$" -e "/vshmem/${shared}[/.]" || true
    fi
}

# A machine of our cluster, and a copy of the initramfs that it boots from, which is there only while it
# boots: $work/initramfs.
boot_one_for_its_files() {
    local up
    LIMIT=300 vshmem up -n 1 --no-net --cold >"$work/up" 2>&1 &
    up=$!
    until cp "$XDG_RUNTIME_DIR/vshmem/$VSHMEM_CLUSTER/initramfs" "$work/initramfs" 2>/dev/null &&
        pgrep -f "^qemu-system-x86_64 -name vshmem-$VSHMEM_CLUSTER-vm0 " >"$work/out"; do
        kill -0 "$up" 2>/dev/null || break
        sleep 0.01
    done
    if ! wait "$up"; then
        failed "a machine comes up" "$(cat "$work/up")"
        exit 1
    fi
}

# What a machine that `vshmem up` has not started is told on its kernel's command line that it sees of the
# host, if its QEMU shows it all.
shares() {
    printf 'vshmem.shares=%s,%s' "$work" "$MACHINES_ROOT/tests"
    printf ',%s' "$MACHINES_TARGET" "$(dirname "$VSHMEM_BIN")" "$(dirname "$VSHMEM_LIB")"
}

# kernel_line NAME UID: the kernel's command line of such a machine, in which `vshmem exec` works
kernel_line() {
    printf '%s ' console=ttyS0 quiet panic=-1 cryptomgr.notests mitigations=off tsc=reliable no_timer_check \
        vshmem.channels=1 "vshmem.name=$1" "vshmem.uid=$2"
    shares
}

# has_driver: whether the machines that came up as $work/up says have vshmem.ko
has_driver() { ! grep -q "no vshmem.ko" "$work/up"; }

# The kernel image of our cluster's machines.
kernel_of_cluster() {
    of_record 'told["kernel"]'
}

# has_kvm: whether machines run on KVM in this run
has_kvm() {
    case " ${VSHMEM_TEST_UP:-} " in *" --accel kvm "*) return 0 ;; esac
    return 1
}

# accel_options: how a QEMU that `vshmem up` has not started runs a machine; on KVM also with all its memory
# locked, as VFIO and real-time guests have it
accel_options() {
    if has_kvm; then
        echo "-accel kvm -cpu host"
        [ "$(ulimit -l)" != unlimited ] && [ "$(id -u)" -ne 0 ] || echo "-overcommit mem-lock=on"
    else
        echo "-accel tcg,thread=multi -cpu max,la57=off"
    fi
}

# take_for_cluster NAME PID: has `vshmem exec` take a QEMU, which boots the initramfs, for a cluster of one
# machine
take_for_cluster() {
    /usr/bin/python3 "$programs/take_for_cluster.py" "$XDG_RUNTIME_DIR/vshmem" "$VSHMEM_CLUSTER" "$@"
}

# hello_over_the_network WHAT SERVER CLIENT: by TCP, between two machines
hello_over_the_network() {
    local server
    vshmem exec "$2" -- /usr/bin/python3 "$programs/hello.py" >"$work/heard" &
    server=$!
    vshmem exec "$3" -- /usr/bin/python3 "$programs/hello.py" "$2" "hello from $3"
    wait "$server"
    equal "$1" "hello from $3" "$(cat "$work/heard")"
}
