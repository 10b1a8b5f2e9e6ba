# shellcheck shell=bash
# shellcheck disable=SC2154 # lib.sh sets it
# Waiting for another machine: asleep until it rings. Needs vshmem.ko for the machines' kernel, which is built
# if need be. WOKEN_ROUNDS (2000) says how often two put each other to sleep; each round has two sleeps and
# two wake-ups.

cluster=$VSHMEM_CLUSTER
export VSHMEM_CLUSTER=${cluster}w
rounds=${WOKEN_ROUNDS:-2000}
limit=$((120 + rounds / 50))

cc -O1 -Wall -Wextra -o "$work/woken" "$programs/woken.c" || exit 1
need_helpers
soak=$MACHINES_TARGET/release/doorbell-soak

LIMIT=300 vshmem up -n 3 --no-net --doorbell >"$work/up" 2>&1 ||
    { failed "three machines come up" "$(cat "$work/up")"; exit 1; }
if ! grep -q "wake each other" "$work/up"; then
    version=$(sed -n 's/^vshmem up: kernel \([^ ]*\).*/\1/p' "$work/up")
    module=$("$MACHINES_ROOT/kmod/build.sh" "$version") || exit 1
    vshmem down
    LIMIT=300 vshmem up -n 3 --no-net --driver "$module" >"$work/up" 2>&1
fi
contains "up says that waiters are woken" "machines wake each other's waiters" "$(cat "$work/up")"
equal "and ps does" yes "$(vshmem ps -l | awk 'NR == 2 { print $8 }')"
contains "a machine maps its pool cached, and can be rung" "cached, sleep" \
    "$(vshmem exec vm0 -- "$VSHMEM_BIN" pool ls)"

in_machine() { # in_machine VM WORD...
    vshmem run --vm "$1" -n 1 --no-prefix -- "$work/woken" "${@:2}"
}

# Asleep: in the driver, at no cost, and woken by another machine, each way to wait.
for kind in semop msgrcv msgsnd; do
    in_machine vm0 sleep $kind >"$work/slept.$kind" &
done
in_machine vm1 sleep semop closed >"$work/slept.closed" &
# Each has told how its ten seconds went by.
have_slept() {
    local kind
    for kind in semop msgrcv msgsnd closed; do [ -s "$work/slept.$kind" ] || return 1; done
}
WITHIN=60 eventually "processes sleep" have_slept
before=$(rings vm2)
for kind in semop msgrcv msgsnd; do
    in_machine vm2 give $kind
done
in_machine vm0 give semop
wait
equal "whoever serves is not rung itself" "$before" "$(rings vm2)"
for kind in semop msgrcv msgsnd closed; do
    read -r wchan used <"$work/slept.$kind"
    equal "$kind: it sleeps in the driver" vshmem_sleep "$wchan"
    equal "$kind: at no cost (used $used ms in 10 s)" yes "$([ "$used" -lt $((100 * slow)) ] && echo yes)"
done

# Only who sleeps is rung.
third=$(rings vm2)
players=$(($(rings vm0) + $(rings vm1)))
vshmem run --vm vm0 -n 1 --no-prefix -- "$work/woken" ping 300 : --vm vm1 -n 1 -- "$work/woken" pong 300
equal "two machines play" 0 $?
equal "the third is not rung" "$third" "$(rings vm2)"
# Who comes first waits for the other one asleep; from then on both may be fast enough to spin.
equal "one of the two was" yes "$([ $(($(rings vm0) + $(rings vm1))) -gt "$players" ] && echo yes)"

# The host is a member, too.
on_host "$work/woken" ping 300 &
code "host and machine play" 0 in_machine vm1 pong 300
wait $!
equal "the host's side ended well" 0 $?
equal "the third was not rung" "$third" "$(rings vm2)"
# served WHAT COMMAND...: somebody who sleeps in vm0 is served by it
served() {
    local what=$1 taker status=0
    shift
    in_machine vm0 take semop &
    taker=$!
    eventually "somebody waits" waits_in vm0
    "$@" || status=$?
    wait "$taker" || status=$?
    equal "$what" 0 "$status"
}
served "the host serves a machine's sleeper" on_host "$work/woken" give semop
# Whoever can't ring says so, and who sleeps looks by itself.
as_root() { vshmem run -u root --vm "$1" -n 1 --no-prefix -- "$work/woken" "${@:2}"; }
served "so does somebody who has lost his descriptor and can't ring" as_root vm1 give semop lost
served "and then somebody who can" in_machine vm1 give semop

# No wake-up is lost: without anybody's looks around.
vshmem down
LIMIT=300 vshmem up -n 2 --no-net --driver "$(sed -n "s/.*waiters (\(.*\.ko[^)]*\)).*/\1/p" "$work/up")" \
    >"$work/up2" 2>&1
play_soak() { # play_soak WHAT COMMAND COMMAND
    local first status=0
    $2 >"$work/soak.0" 2>&1 &
    first=$!
    $3 >"$work/soak.1" 2>&1 || status=$?
    wait "$first" || status=$?
    equal "$1: $(tail -n 1 "$work/soak.0")" 0 "$status"
    [ "$status" -eq 0 ] || cat "$work/soak.0" "$work/soak.1"
}
machine_soak() { LIMIT=$limit vshmem exec "$1" -- "$soak" default "$2" "$rounds"; }
host_soak() { timeout $((limit * slow)) "$soak" "cluster.$VSHMEM_CLUSTER" "$1" "$rounds"; }
play_soak "no wake-up is lost between machines" "machine_soak vm0 0" "machine_soak vm1 1"

# Nor between the host and a machine, though the back end is killed meanwhile.
(
    for _ in 1 2; do
        sleep 0.4
        kill -KILL "$(back_end)"
    done
) &
play_soak "nor between the host and a machine" "host_soak 0" "machine_soak vm1 1"
wait
vshmem down
nothing_left "nothing is left of machines that were woken"
export VSHMEM_CLUSTER=$cluster
