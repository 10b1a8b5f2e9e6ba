# shellcheck shell=bash
# shellcheck disable=SC2016,SC2154 # other shells expand what is quoted; lib.sh sets it
# Pools are granted to machines that run, and revoked from them.

cluster=$VSHMEM_CLUSTER
# Those that other cases share take processor time.
vshmem down >"$work/out" 2>&1
export VSHMEM_CLUSTER=${cluster}g
pool=grant-$VSHMEM_CLUSTER
other=$pool-other
clean_up() {
    for name in "$pool" "$other"; do
        [ ! -e "/dev/shm/vshmem.$(id -u)/$name" ] || vshmem pool rm "$name"
    done
}
code "a pool is made" 0 vshmem pool create "$pool" --size 64M
code "and another one" 0 vshmem pool create "$other" --size 256M

if ! LIMIT=300 vshmem up -n 2 --no-net --spare-pools 2 --largest-pool 64M >"$work/up" 2>&1; then
    failed "two machines with room for pools come up" "$(cat "$work/up")"
    exit 1
fi

# in_pool VM COMMAND...: a program in a machine, in the pool
members() { # members NAME: how many living members of the pool are called so
    members_of "$pool" | grep -o "('$1', True)" | wc -l
}

# The first is granted right after the boot, when the front end may have to be waited for.
code "a pool is granted to a machine that runs" 0 vshmem grant "$pool" vm0
vshmem revoke "$pool" vm0 >"$work/out"
told=$(vshmem grant "$pool" vm0 --json)
equal "its front end says that programs can use it" True "$(field "told['usable']" <<<"$told")"
took=$(field "round(told['milliseconds'])" <<<"$told")
# On a host with nothing else to do it takes some 40 ms, under TCG.
holds "soon, after $took ms" test "$took" -lt $((3000 * slow))
contains "to grant it twice is no failure" "could use $pool already" "$(vshmem grant "$pool" vm0 2>&1)"
contains "vshmem ps shows it" "default,$pool" "$(vshmem ps | grep " vm0 ")"

code "a program in it uses the pool" 0 in_pool vm0 perl "$common/tell.pl" one two

# The machine that was not given it.
equal "another machine has no pool of this name" yes \
    "$(in_pool vm1 perl "$common/tell.pl" x >"$work/out" 2>&1 || echo yes)"
contains "which the first one lists" "$pool" "$(vshmem exec vm0 -- "$VSHMEM_BIN" pool ls)"
contains "with what lies in it" 00004711 "$(vshmem exec vm0 -- "$VSHMEM_BIN" ipcs)"
equal "it knows of no such pool" "" "$(vshmem exec vm1 -- "$VSHMEM_BIN" pool ls | grep "$pool")"
equal "has the device of its own pool alone" 1 \
    "$(vshmem exec vm1 -- sh -c 'cat /sys/bus/pci/devices/*/device' | grep -c 0x1110)"
equal "and finds none of what lies there" "No such file or directory" \
    "$(vshmem run --vm vm1 -n 1 --no-prefix -- python3 "$common/hear.py")"
equal "nor counts it" "" "$(vshmem exec vm1 -- "$VSHMEM_BIN" ipcs | grep -i 4711)"

code "the second machine is given it, too" 0 vshmem grant "$pool" vm1
equal "and gets what the first has sent" one "$(in_pool vm1 python3 "$common/hear.py")"
equal "as a process of the host does" two \
    "$(VSHMEM_POOL=$pool vshmem run --local --no-prefix -- python3 "$common/hear.py")"

# Taken away while it is used.
in_pool vm1 perl "$programs/refused.pl" >"$work/held" 2>&1 &
holder=$!
eventually "a process of the second machine waits" grep -q waits "$work/held"
equal "it has changed a semaphore" 5 "$(in_pool vm0 perl "$common/value.pl" 0x4712)"
told=$(vshmem revoke "$pool" vm1 --json)
passed "the pool is taken away, after $(field "round(told['milliseconds'])" <<<"$told") ms"
wait "$holder"
equal "the process gets EIDRM, at once and ever after" \
    "waits|woken: Identifier removed|new call: Identifier removed|semaphore: Identifier removed" \
    "$(grep -v '^vshmem: ' "$work/held" | tr '\n' '|' | sed 's/|$//')"
equal "and is told why" 3 "$(grep -c '^vshmem: perl.* error: .* the pool was taken away from this machine' \
    "$work/held")"
value_is() { [ "$(in_pool vm0 perl "$common/value.pl" 0x4712)" = "$1" ]; }
eventually "what it held is undone for the other machine" value_is 0
equal "the machine is no member any more" 0 "$(members vm1)"
equal "a new program there finds no such pool" yes \
    "$(in_pool vm1 perl "$common/tell.pl" x >"$work/out" 2>&1 || echo yes)"
code "to revoke it twice is a failure" 1 vshmem revoke "$pool" vm1
code "the other machine goes on" 0 in_pool vm0 perl "$common/tell.pl" three

code "it can be granted again" 0 vshmem grant "$pool" vm1
equal "and works as before" three "$(in_pool vm1 python3 "$common/hear.py")"

# Commands that are killed at any point.
for delay in 0.005 0.01 0.015 0.02 0.03 0.045 0.07; do
    # The shell's word about who was killed goes there, too.
    {
        timeout -s KILL "$delay" "$VSHMEM_BIN" revoke "$pool" vm1 || true
        timeout -s KILL "$delay" "$VSHMEM_BIN" grant "$pool" vm1 || true
    } >"$work/out" 2>&1
done
vshmem revoke "$pool" vm1 >"$work/out" 2>&1 || true
code "after commands that were killed it can be granted" 0 vshmem grant "$pool" vm1
code "and used" 0 in_pool vm1 perl "$common/tell.pl" four
equal "from both" four "$(in_pool vm0 python3 "$common/hear.py")"

# What can't be done is said.
refused() { # refused WHAT PART COMMAND...
    contains "$1" "$2" "$("${@:3}" 2>&1)"
}
refused "a pool that is too large" "has room for" vshmem grant "$other" vm0
refused "a name that is taken" "has another pool that is called" vshmem grant "$other" vm0 --as "$pool"
refused "a pool that it has under another name" "already, as $pool" vshmem grant "$pool" vm0 --as another
refused "a pool that is not there" "there is no pool" vshmem grant nothing vm0
refused "a machine that is not there" "has no machine" vshmem grant "$pool" vm7

# A machine that does not let go, as it is paused.
monitor vm1 stop >"$work/out"
refused "a machine that does not let go" "vm1 still has the pool $pool" vshmem revoke "$pool" vm1 \
    --timeout 0.5
monitor vm1 cont >"$work/out"
released() { ! vshmem ps | grep " vm1 " | grep -q "$pool"; }
eventually "lets go when it can" released
refused "and the next command clears up" "does not have the pool" vshmem revoke "$pool" vm1

vshmem down
nothing_left "nothing is left of machines with granted pools"

if LIMIT=300 vshmem up -n 1 --no-net --no-doorbell --pool "$pool" --spare-pools 1 >"$work/up" 2>&1; then
    passed "a machine comes up with another pool"
    code "which works" 0 in_pool vm0 perl "$common/tell.pl" five
    code "one more is granted" 0 vshmem grant "$other" vm0
    # Moved, it would have the pools as they were, and write that over what others have.
    equal "QEMU refuses to move it, for each of its pools" 3 \
        "$(monitor vm0 query-migrate | grep -o 'peer mode' | wc -l)"
    vshmem pool create "$other-2" --size 1M
    refused "there is no room for yet another" "no free port" vshmem grant "$other-2" vm0
    vshmem pool rm "$other-2"
    equal "the machine is a member" 1 "$(members vm0)"
    code "a cluster's own pool can be taken away" 0 vshmem revoke default vm0
    code "and given back" 0 vshmem grant "cluster.$VSHMEM_CLUSTER" vm0 --as default
    monitor vm0 stop >"$work/out"
    contains "a machine that does not let go is turned off by --force" "vm0 is off" \
        "$(vshmem revoke default vm0 --timeout 0.2 --force 2>&1)"
    contains "and is shown so" died "$(vshmem ps 2>"$work/out" | grep " vm0 ")"
    vshmem down
    equal "and dead when it was stopped" 0 "$(members vm0)"
else
    failed "a machine comes up with another pool" "$(cat "$work/up")"
fi
nothing_left "nothing is left of it"
clean_up
export VSHMEM_CLUSTER=$cluster
