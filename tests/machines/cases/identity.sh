# shellcheck shell=bash
# shellcheck disable=SC2154 # lib.sh sets it
# Machines that show their programs one boot id, as copies of a machine do, are told apart all the same. Who
# takes another machine's processes for its own finds them dead, takes their locks over, and the pool is
# damaged for good.

cluster=$VSHMEM_CLUSTER
export VSHMEM_CLUSTER=${cluster}i

cat /proc/sys/kernel/random/uuid >"$work/boot_id"


alike() { # alike WHAT OPTION...: both machines of a new cluster show one boot id, and use its pool hard
    local what=$1 vm pool=cluster.$VSHMEM_CLUSTER
    shift
    if ! LIMIT=300 vshmem up -n 2 --no-net "$@" >"$work/up" 2>&1; then
        failed "$what: two machines come up" "$(cat "$work/up")"
        return
    fi
    for vm in vm0 vm1; do
        vshmem exec -u root "$vm" -- mount --bind "$work/boot_id" /proc/sys/kernel/random/boot_id
        equal "$what: $vm shows the boot id" "$(cat "$work/boot_id")" \
            "$(vshmem exec "$vm" -- cat /proc/sys/kernel/random/boot_id)"
    done
    equal "$what: both make and remove objects at once" "fine,fine,fine,fine," \
        "$(LIMIT=200 vshmem run -n 4 --no-prefix -- perl "$programs/allocate.pl" 6 2>&1 | tr '\n' ',')"
    equal "$what: so do programs in name spaces of their own beside others" "fine,fine," \
        "$(LIMIT=200 vshmem run --vm vm0 -n 1 --no-prefix -u root -- unshare -m -p -f -n -i -u perl \
        "$programs/allocate.pl" 3 \
            : --vm vm0 -n 1 --no-prefix -u root -- perl "$programs/allocate.pl" 3 2>&1 | tr '\n' ',')"
    members_of "$pool" >"$work/members"
    equal "$what: each machine is one member" "[('vm0', True), ('vm1', True)]" \
        "$(sed "s/('$(uname -n)', True), //; s/, ('$(uname -n)', True)//" "$work/members")"
    # What the last of those who were killed have left is mended: that is no damage.
    local whole=0
    vshmem check "$pool" >"$work/check" 2>&1 || whole=$?
    if [ "$whole" -le 1 ]; then
        passed "$what: the pool is whole"
    else
        failed "$what: the pool is whole" "$(cat "$work/check")"
    fi
    vshmem down
}

alike "without driver and doorbells" --driver none
alike "with doorbells alone" --driver none --doorbell
version=$(sed -n 's/^vshmem up: kernel \([^ ]*\).*/\1/p' "$work/up")
if ! module=$("$MACHINES_ROOT/kmod/build.sh" "$version" 2>"$work/build"); then
    failed "the driver is built" "$(cat "$work/build")"
    exit 1
fi
alike "with the driver and doorbells" --driver "$module" --doorbell
alike "with the driver alone" --driver "$module" --no-doorbell
nothing_left "nothing is left of machines with one boot id"
export VSHMEM_CLUSTER=$cluster
