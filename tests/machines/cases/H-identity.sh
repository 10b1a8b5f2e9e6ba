# shellcheck shell=bash
# shellcheck disable=SC2154 # lib.sh sets work
# Machines that show their programs one boot id, as copies of a machine do, are told apart all the same. Who takes another machine's
# processes for its own finds them dead, takes their locks over, and the pool is damaged for good.

cluster=$VSHMEM_CLUSTER
export VSHMEM_CLUSTER=${cluster}i

cat /proc/sys/kernel/random/uuid >"$work/boot_id"

cat >"$work/allocate.pl" <<'P'
# Makes IPC objects of all kinds and removes them again, for some seconds; some of its processes are killed
# meanwhile.
use strict;
use warnings;
my $end = time + shift;
sub must { my ($result, $what) = @_; defined $result or die "$what: $!\n"; return $result }
sub turn {
    my $set = must(semget(0, 1 + int(rand(60)), 01600), 'semget');
    my $segment = must(shmget(0, 1 + int(rand(40000)), 01600), 'shmget');
    my $queue = must(msgget(0, 01600), 'msgget');
    must(semop($set, pack('s!3', 0, 1, 0x1000)), 'semop');
    must(msgsnd($queue, pack('l! a*', 1, 'x' x rand(4000)), 0), 'msgsnd');
    must(shmwrite($segment, 'y', 0, 1), 'shmwrite');
    must(msgrcv($queue, my $text, 5000, 0, 0), 'msgrcv');
    must(semctl($set, 0, 0, 0), 'semctl');
    must(shmctl($segment, 0, 0), 'shmctl');
    must(msgctl($queue, 0, 0), 'msgctl');
}
my $turns = 0;
while (time < $end) {
    my $child = fork // die "fork: $!";
    if (!$child) {
        turn() while 1;
    }
    for (1 .. 20) { turn(); $turns++ }
    kill 'KILL', $child;
    waitpid $child, 0;
    ($? & 127) == 9 or die "a child has ended with $?\n";
}
print $turns > 0 ? "fine\n" : "nothing was done\n";
P

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
        "$(LIMIT=200 vshmem run -n 4 --no-prefix -- perl "$work/allocate.pl" 15 2>&1 | tr '\n' ',')"
    equal "$what: so do programs in name spaces of their own beside others" "fine,fine," \
        "$(LIMIT=200 vshmem run --vm vm0 -n 1 --no-prefix -u root -- unshare -m -p -f -n -i -u perl "$work/allocate.pl" 5 \
            : --vm vm0 -n 1 --no-prefix -u root -- perl "$work/allocate.pl" 5 2>&1 | tr '\n' ',')"
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
