# shellcheck shell=bash
# shellcheck disable=SC2154 # lib.sh sets it
# The front end as a service of a machine's systemd, which confines it, does its work.

if [ ! -x /lib/systemd/systemd ]; then
    echo "skip: the unit of the front end: there is no systemd here for a machine to run"
    exit 0
fi
cluster=$VSHMEM_CLUSTER
vshmem down >/dev/null 2>&1
export VSHMEM_CLUSTER=${cluster}u
pool=unit-$VSHMEM_CLUSTER
clean_up() {
    [ ! -e "/dev/shm/vshmem.$(id -u)/$pool" ] || vshmem pool rm "$pool"
}
# Not where it was built, which may be below /home: services do not see that.
sed -e "s|@BINDIR@/vshmem|/run/front-end/vshmem|" "$MACHINES_ROOT/packaging/vshmem-agent-guest.service.in" \
    >"$work/front.service"
vshmem pool create "$pool" --size 16M >"$work/out"
if ! LIMIT=300 vshmem up -n 1 --no-net --spare-pools 1 >"$work/up" 2>&1; then
    failed "a machine comes up" "$(cat "$work/up")"
    exit 1
fi
passed "a machine comes up: $(tail -n 1 "$work/up")"
equal "systemd starts the front end, without most of root's rights" "000000000028002b 1 2" \
    "$(vshmem exec -u root vm0 -- sh "$programs/unit.sh" "$work/front.service" "$VSHMEM_BIN" 2>&1)"
told=$(vshmem grant "$pool" vm0 --json)
equal "it says that programs can use a pool that is granted" True "$(field "told['usable']" <<<"$told")"
contains "which has its name" " $pool" "$(vshmem exec vm0 -- cat /run/vshmem/pools)"
code "so that they find it" 0 vshmem run --vm vm0 -n 1 -e VSHMEM_POOL="$pool" -- \
    perl -e 'defined(msgget(9, 01600)) or die $!'
code "it lets go of a pool that is revoked" 0 vshmem revoke "$pool" vm0
vshmem down
clean_up
export VSHMEM_CLUSTER=$cluster
