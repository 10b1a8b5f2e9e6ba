# shellcheck shell=bash
# shellcheck disable=SC2154 # inside.sh sets what it uses
# Drives: a whole one, and a virtual function; killed machines and commands, and two clusters that want the
# same one.

# The drives by their serial numbers.
drive_of() {
    local it
    for it in /sys/class/nvme/nvme*; do
        if grep -q "^$1 *$" "$it/serial"; then basename "$it"; fi
    done
}
address_of() { basename "$(readlink -f "/sys/class/nvme/$1/device")"; }
eventually "there are two drives" test -e /dev/nvme1n1
plain=$(drive_of plain) shared=$(drive_of shared)
one=$(address_of "$plain") two=$(address_of "$shared")

says() { # says TEXT DEVICE: writes to a disk, past caches
    printf "dd if=/dev/zero bs=4096 count=1 2>/dev/null | tr '\\\\0' %s | " "$1"
    printf "dd of=%s bs=4096 oflag=direct" "$2"
}
hears() { printf "dd if=%s bs=4096 count=1 iflag=direct 2>/dev/null | cut -b 1-8" "$1"; }

equal "both can be given" "free - free -" "$(named "$one") $(named "$two")"
contains "the list says so" "free" "$(vshmem devices "$one")"
contains "what is asked for can be copied" "devices = [\"$one\"]" "$(vshmem devices --explain "$one")"
contains "virtual functions are told of" "has 0 of 2 virtual functions" "$(vshmem devices --explain "$two")"
vshmem devices --json | /usr/bin/python3 "$root/tests/schema.py" devices
equal "the list has the shape that its schema says" 0 $?

# A drive that is used stays where it is.
cluster first "\"$one\""
code "a drive is swap space" 0 sh -c "mkswap /dev/${plain}n1 && swapon /dev/${plain}n1"
equal "it is not free then" "hindered - driver-busy" "$(named "$one")"
code "and not given" 1 up first
contains "which is said" "${plain}n1 is swap space" "$(cat "$work/out")"
code "it is swap space no longer" 0 swapoff "/dev/${plain}n1"
equal "it has its driver" nvme "$(driver "$one")"

# A machine does I/O on a drive of its own.
code "a machine comes up with a drive" 0 up first
cat "$work/out"
equal "whose driver is VFIO's" vfio-pci "$(driver "$one")"
equal "it is held" "held first" "$(named "$one")"
contains "ps says so" "\"$one\"" "$(vshmem ps --json)"
code "it has one" 0 in_machine first "sh -e $MODULES/nvme; sleep 1; test -e /dev/nvme0n1"
code "it writes to it" 0 in_machine first "$(says first /dev/nvme0n1)"
equal "and reads it" ffffffff "$(in_machine first "$(hears /dev/nvme0n1)")"

# Two clusters that want the same one.
cluster second "\"$one\""
code "another cluster does not get it" 1 up second
contains "and is told who has it" "$one is held by vm0 of the cluster first" "$(cat "$work/out")"
equal "nothing of it is left" "first " "$(vshmem ps --json | /usr/bin/python3 -c '
import json, sys
for it in json.load(sys.stdin)["clusters"]: print(it["name"], end=" ")')"
equal "the first one still reads it" ffffffff "$(in_machine first "$(hears /dev/nvme0n1)")"

# A machine that is killed keeps its drive, and gets it again.
kill -KILL "$(of_cluster first "m['pid']")"
eventually "the machine is dead" sh -c "'$VSHMEM_BIN' ps | grep -q died"
equal "its drive is still its own" "held first" "$(named "$one")"
code "another cluster does not get it now, either" 1 up second
code "the machine comes back" 0 vshmem repair -c first --timeout 600
code "with its drive" 0 in_machine first "sh -e $MODULES/nvme; sleep 1; test -e /dev/nvme0n1"
equal "and what is on it" ffffffff "$(in_machine first "$(hears /dev/nvme0n1)")"
code "the cluster ends" 0 vshmem down -c first
equal "the drive has its driver again" nvme "$(driver "$one")"
eventually "and is this host's" test -e "/dev/${plain}n1"
equal "with what the machine has written" ffffffff "$(sh -c "$(hears "/dev/${plain}n1")")"
equal "it is free" "free -" "$(named "$one")"

# A command that is killed when it has bound the drive.
up second >"$work/killed" 2>&1 &
tool=$!
eventually "another command binds it" sh -c "readlink $pci/$one/driver | grep -q vfio-pci"
kill_command "$tool"
cluster third '"nvme", "0000:ff:1f.7"'
code "a third cluster wants what there is not" 1 up third
equal "the killed one's drive has been given back" nvme "$(driver "$one")"
code "what the killed command has left goes" 0 vshmem down -c second

# A virtual function. The drive gives it queues.
code "the drive keeps no queues that it can give away" 0 "$here/nvme.py" free "/dev/$shared"
echo 1 >"$pci/$two/reset"
cluster virtual "\"vf of $two\""
code "a machine comes up with a virtual function" 0 up virtual
cat "$work/out"
equal "two were made" 2 "$(cat "$pci/$two/sriov_numvfs")"
vf=$(basename "$(readlink "$pci/$two/virtfn0")")
equal "one of them is the machine's" "vfio-pci held virtual" "$(driver "$vf") $(named "$vf")"
equal "the other one is free" "free -" "$(named "$(basename "$(readlink "$pci/$two/virtfn1")")")"
equal "the drive itself is not" "nvme hindered - has-virtual-functions" "$(driver "$two") $(named "$two")"
equal "other drivers get virtual functions as before" 1 "$(cat "$pci/$two/sriov_drivers_autoprobe")"
code "the drive gives it queues" 0 "$here/nvme.py" online "/dev/$shared" 1
code "the machine has a drive" 0 in_machine virtual "sh -e $MODULES/nvme; sleep 1; test -e /dev/nvme0n1"
code "it writes to it" 0 in_machine virtual "$(says vf /dev/nvme0n1)"
equal "and reads it" vvvvvvvv "$(in_machine virtual "$(hears /dev/nvme0n1)")"
cluster fourth "\"$two\""
code "the drive itself is not given" 1 up fourth
contains "since it has virtual functions" "it has 2 virtual functions" "$(cat "$work/out")"
sed -i "s/vf of $two/$one/" "$work/virtual.toml"
contains "other devices take a restart" "restart  vm0: devices $one instead of vf of $two" \
    "$(up virtual --dry-run)"
code "the cluster ends" 0 vshmem down -c virtual
equal "the virtual functions are gone" 0 "$(cat "$pci/$two/sriov_numvfs")"
equal "what the machine has written is on the drive" vvvvvvvv "$(sh -c "$(hears "/dev/${shared}n1")")"
equal "nothing is held" "free - free -" "$(named "$one") $(named "$two")"
equal "the ledger is empty" "" "$(ls /run/vshmem-devices)"
