# shellcheck shell=bash
# What the cases share. Sourced by run.sh.
set -u

work=$MACHINES_WORK
slow=${VSHMEM_TEST_SLOW:-1}

# The command, which must not take for ever. Machines see what the cases write, boot VSHMEM_TEST_KERNEL, if it is set, and are started with the
# options VSHMEM_TEST_UP. Where everything is slow, VSHMEM_TEST_SLOW (1) says how many times longer it may take.
vshmem() {
    if [ "$1" = up ]; then
        set -- "$@" --share "$work"
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
    [ "$document" != pool ] || document=pool-ls
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

passed() {
    echo "ok      $1"
    echo "$1" >>"$work/passed"
}

failed() { # failed WHAT WHY...
    echo "$1" >>"$work/failed"
    echo "FAILED  $1"
    shift
    printf '        %s\n' "$@"
}

# equal WHAT EXPECTED GOT
equal() {
    if [ "$2" = "$3" ]; then
        passed "$1"
    else
        failed "$1" "expected: $2" "got:      $3"
    fi
}

# contains WHAT PART TEXT
contains() {
    case $3 in
    *"$2"*) passed "$1" ;;
    *) failed "$1" "expected in it: $2" "got: $3" ;;
    esac
}

# code WHAT EXPECTED COMMAND...: the exit code of a command whose output does not matter
code() {
    local what=$1 expected=$2 got=0
    shift 2
    "$@" >"$work/out" 2>&1 || got=$?
    equal "$what" "$expected" "$got"
}

# on_terminal STEP... -- COMMAND...: what terminal.py says, then the exit code
on_terminal() {
    /usr/bin/python3 "$MACHINES_ROOT/tests/machines/terminal.py" "$@" 2>&1
    echo "code $?"
}

# eventually WHAT COMMAND...: the command succeeds within WITHIN (10) seconds
eventually() {
    local what=$1 i
    shift
    for ((i = 0; i < 10 * ${WITHIN:-10} * slow; i++)); do
        if "$@" >"$work/out" 2>&1; then
            passed "$what"
            return
        fi
        sleep 0.1
    done
    failed "$what" "$* does not succeed" "$(tail -n 3 "$work/out")"
}

# Two machines that the cases share; booted by whichever needs them first.
need_machines() {
    if ! vshmem ps | grep -q "^$VSHMEM_CLUSTER .*running"; then
        if ! LIMIT=300 vshmem up -n 2 >"$work/up" 2>&1; then
            failed "two machines come up" "$(cat "$work/up")"
            exit 1
        fi
        passed "two machines come up: $(tail -n 1 "$work/up")"
    fi
}

# members_of POOL: a pool's members by name, and whether they live
members_of() {
    vshmem ipcs --pool "$1" --json | /usr/bin/python3 -c '
import json, sys
print(sorted((m["name"], m["alive"]) for pool in json.load(sys.stdin)["pools"] for m in pool["members"]))'
}

# nothing_left WHAT: no process, no socket, no pool of our clusters
nothing_left() {
    local left
    left=$(
        pgrep -a -f "^qemu-system-x86_64 -name vshmem-$VSHMEM_CLUSTER" || true
        find "$XDG_RUNTIME_DIR" -mindepth 1
        find /dev/shm -maxdepth 2 -path "/dev/shm/vshmem.$(id -u)/cluster.$VSHMEM_CLUSTER*"
    )
    equal "$1" "" "$left"
}

# A machine of our cluster, and a copy of the initramfs that it boots from, which is there only while it boots: $work/initramfs.
boot_one_for_its_files() {
    local up
    LIMIT=300 vshmem up -n 1 --no-net >"$work/up" 2>&1 &
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

# What a machine that `vshmem up` has not started is told on its kernel's command line that it sees of the host, if its QEMU shows it all.
shares() {
    printf 'vshmem.shares=%s' "$work"
    printf ',%s' "$MACHINES_TARGET" "$(dirname "$VSHMEM_BIN")" "$(dirname "$VSHMEM_LIB")"
}

# The kernel image of our cluster's machines.
kernel_of_cluster() {
    /usr/bin/python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["kernel"])' \
        "$XDG_RUNTIME_DIR/vshmem/$VSHMEM_CLUSTER/cluster.json"
}

# has_kvm: whether machines run on KVM in this run
has_kvm() {
    case " ${VSHMEM_TEST_UP:-} " in *" --accel kvm "*) return 0 ;; esac
    return 1
}

# accel_options: how a QEMU that `vshmem up` has not started runs a machine; on KVM also with all its memory locked, as VFIO and real-time guests have it
accel_options() {
    if has_kvm; then
        echo "-accel kvm -cpu host"
        [ "$(ulimit -l)" != unlimited ] && [ "$(id -u)" -ne 0 ] || echo "-overcommit mem-lock=on"
    else
        echo "-accel tcg,thread=multi -cpu max,la57=off"
    fi
}

# take_for_cluster NAME PID: has `vshmem exec` take a QEMU, which boots the initramfs, for a cluster of one machine
take_for_cluster() {
    /usr/bin/python3 - "$XDG_RUNTIME_DIR/vshmem" "$VSHMEM_CLUSTER" "$@" <<'P'
import json, sys
clusters, source, name, pid = sys.argv[1:]
record = json.load(open(f"{clusters}/{source}/cluster.json"))
record.update(name=name, channels=1, doorbell=False, pool="/dev/shm/none")
started = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[19]
record["machines"][0].update(pools=[], runs={"pid": int(pid), "started": int(started)})
json.dump(record, open(f"{clusters}/{name}/cluster.json", "w"))
P
}

# hello_over_the_network WHAT SERVER CLIENT: by TCP, between two machines
hello_over_the_network() {
    cat >"$work/server.py" <<P
import socket
server = socket.create_server(("", 7777))
connection = server.accept()[0]
print(connection.recv(100).decode(), flush=True)
P
    cat >"$work/client.py" <<P
import socket, time
for attempt in range(100):
    try:
        connection = socket.create_connection(("$2", 7777), timeout=5)
        break
    except OSError:
        time.sleep(0.1)
connection.sendall(b"hello from $3")
P
    local server
    vshmem exec "$2" -- /usr/bin/python3 "$work/server.py" >"$work/heard" &
    server=$!
    vshmem exec "$3" -- /usr/bin/python3 "$work/client.py"
    wait "$server"
    equal "$1" "hello from $3" "$(cat "$work/heard")"
}
