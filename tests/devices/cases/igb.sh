# shellcheck shell=bash
# shellcheck disable=SC2154 # inside.sh sets what it uses
# Virtual functions of a network card that this host uses: a machine's reaches the card, and another one.

need_card
there() { busybox nsenter --net=/run/there "$@"; } # on another host, as it were
interrupts() { # interrupts CLUSTER: of its card, by messages
    in_machine "$1" "awk '/PCI-MSI.* e/ { n += \$2 } END { print n + 0 }' /proc/interrupts"
}

contains "virtual functions are told of" "has 0 of 7 virtual functions" "$(vshmem devices --explain "$pf")"
equal "the card is this host's" "hindered - driver-busy" "$(named "$pf")"

cluster net "\"vf of $pf\""
code "a machine comes up with a virtual function" 0 up net
cat "$work/out"
equal "seven were made" 7 "$(cat "$pci/$pf/sriov_numvfs")"
vf=$(held_by vfio-pci)
equal "one of them is the machine's" "held net" "$(named "$vf")"
equal "no driver of this host has the others" "" "$(held_by igbvf)"
equal "the card is still this host's" igb "$(driver "$pf")"
code "the machine is on the network" 0 joins net 2
code "it reaches this host, through the card" 0 reaches net 1
code "this host reaches it" 0 busybox ping -c 1 -W 20 10.77.0.2
other=$(functions | awk '$2 == "" { print $1; exit }')
echo "$other" >/sys/bus/pci/drivers/igbvf/bind
touch /run/there
unshare --net=/run/there sleep 600 &
neighbour=$!
eventually "there is another network" mountpoint -q /run/there
busybox ip link set "$(ls "$pci/$other/net")" netns "$neighbour" name other
there busybox ip addr add 10.77.0.3/24 dev other
there busybox ip link set other up
before=$(interrupts net)
code "another virtual function is reached" 0 reaches net 3 10
after=$(interrupts net)
equal "the machine is interrupted for its packets ($before, $after)" yes \
    "$([ "$after" -ge $((before + 10)) ] && echo yes)"
echo "$other" >/sys/bus/pci/drivers/igbvf/unbind
kill "$neighbour"
umount /run/there

# Another cluster that wants the same one.
cluster rival "\"$vf\""
code "another cluster does not get it" 1 up rival
contains "and is told who has it" "$vf is held by vm0 of the cluster net" "$(cat "$work/out")"
code "the machine still has it" 0 reaches net 1

# A machine that is killed.
kill -KILL "$(of_cluster net "m['pid']")"
eventually "the machine is dead" sh -c "'$VSHMEM_BIN' ps | grep -q died"
equal "its function is still its own" "$vf held net" "$(held_by vfio-pci) $(named "$vf")"
code "another cluster does not get it now, either" 1 up rival
code "the machine comes back" 0 vshmem repair -c net --timeout 600
code "and is on the network" 0 joins net 2
code "as before" 0 reaches net 1
code "the cluster ends" 0 vshmem down -c net
equal "the virtual functions are gone" 0 "$(cat "$pci/$pf/sriov_numvfs")"
equal "the ledger is empty" "" "$(ls /run/vshmem-devices)"

# Virtual functions that this host has made and uses.
echo 2 >"$pci/$pf/sriov_numvfs"
theirs=$(held_by igbvf)
equal "this host has two" 2 "$(wc -w <<<"$theirs")"
up net >"$work/killed" 2>&1 &
tool=$!
bound() { [ "$(wc -w <<<"$(held_by vfio-pci)")" -eq 1 ]; }
eventually "a command gives one to a machine" bound
kill_command "$tool"
code "what the killed command has left goes" 0 vshmem down -c net
equal "this host has both again" "$theirs" "$(held_by igbvf)"
echo 0 >"$pci/$pf/sriov_numvfs"
busybox ip link set "$card" down
equal "the card itself can be given then" "free -" "$(named "$pf")"
