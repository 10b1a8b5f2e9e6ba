# shellcheck shell=sh
# shellcheck disable=SC2016 # other shells expand what is quoted
# vshmem up starts domains by xl, and what it offers for machines of QEMU works in them. The memory is needed
# that guests before have.
for name in vm0 vm1 vm2 vm3; do
    [ -z "$(id_of $name)" ] || destroy $name
done
mkdir -p /run/up
mkdir -p /run/other
chmod 700 /run/up /run/other
export XDG_RUNTIME_DIR=/run/up VSHMEM_LIB=/lib/libvshmem.so
cd /tests || exit

# domain VM: the id of the domain that a machine is
domain() {
    xl domid "vshmem-default-$1" 2>/dev/null
}

# left: what is there of domains, processes, pools and files of clusters
left() {
    xl list | grep vshmem-
    find /run/up /dev/vshmem-xen -maxdepth 1 -name '*default*' -o -name vshmem 2>/dev/null
    xenstore-ls /local/domain/0/data/vshmem 2>/dev/null | grep cluster-
    ps -o args | grep -E '[x]en own cluster|[q]emu-system-i386|[x]l create'
}

said=$(vshmem up --hypervisor xen --net 2>&1)
contains "what does not fit is refused" "--net can't be given for machines on Xen" "$said"
said=$(vshmem up --hypervisor xen --spare-pools 2 2>&1)
contains "nor is this" "--spare-pools and --largest-pool can't be given for machines on Xen" "$said"
said=$(vshmem up --hypervisor xen --driver none 2>&1)
contains "a domain needs the driver" "there is no vshmem_xen.ko for the machines' kernel" "$said"
equal "nothing is left of what was refused" "" "$(left)"

if vshmem up --hypervisor xen -n 2 --memory 260M --timeout 400 >/tmp/up 2>&1; then
    passed "two domains come up"
else
    failed "two domains come up" "$(cat /tmp/up)" "$(cat /run/up/vshmem/default/vm0/xl.log)" \
        "$(tail -n 30 /var/log/xen/console/*vm0.log)"
fi
contains "ps shows them" "vm1  running  xen" "$(vshmem ps -l | tr -s ' ' | sed 's/ /  /g')"
contains "with the pool" " cluster-default" "$(vshmem ps)"

# Domains' names are for all of dom0, clusters' directories are not.
said=$(XDG_RUNTIME_DIR=/run/other vshmem up --hypervisor xen -n 1 2>&1)
contains "a cluster of that name is not started from elsewhere" "is served by another process" "$said"
contains "and nothing happens to the one that runs" "vm1  running  xen" \
    "$(vshmem ps -l | tr -s ' ' | sed 's/ /  /g')"

equal "each is a machine of its own" "vm0: vm0,vm1: vm1," "$(vshmem run -- uname -n | sort | tr '\n' ',')"
equal "with an own kernel" "vm1" "$(vshmem exec vm1 -- cat /proc/sys/kernel/hostname)"
code "an exit code is passed on" 7 vshmem exec vm0 -- sh -c 'exit 7'
equal "input and output are" "HELLO" "$(echo hello | vshmem exec vm1 -- tr a-z A-Z)"
head -c 50000 /bin/busybox >/tests/bytes
equal "all of it, and none twice" "$(md5sum <bytes)" "$(vshmem exec vm0 -- md5sum <bytes)"
equal "in both directions" "$(md5sum <bytes)" "$(vshmem exec vm0 -- cat /tests/bytes | md5sum)"

code "dom0's programs run in a domain, and send" 0 vshmem run --vm vm0 -- perl send.pl
equal "what another receives" "65536,1000,5," \
    "$(vshmem run --vm vm1 --no-prefix -- python3 receive.py | tr '\n' ',')"
equal "dom0 has the pool, too" "from dom0" "$(
    VSHMEM_POOL=cluster-default vshmem run --local --no-prefix -- perl tell.pl "from dom0" &&
        vshmem run --vm vm1 --no-prefix -- python3 hear.py
)"

# What a domain may do to dom0.
vshmem exec vm0 -- sh -c 'echo own >/tests/own'
equal "what a domain writes stays there" "own no" \
    "$(vshmem exec vm0 -- cat /tests/own) $(cat /tests/own 2>/dev/null || echo no)"
qemu=$(pidof xen-qemu-system-i386 | cut -d" " -f1)
equal "QEMU can't write for it either" "ro" \
    "$(sed -n 's|^[^ ]* /run/up/vshmem/default/vm./root [^ ]* \(..\).*|\1|p' "/proc/$qemu/mounts" | sort -u)"

# A command whose caller is killed.
vshmem exec vm0 -- sleep 2718 &
caller=$!
eventually "a command runs" vshmem exec vm0 -- pidof sleep
kill -9 $caller
eventually "it is ended with who has called it" vshmem exec vm0 -- sh -c '! pidof sleep'

# A domain is started anew.
vshmem run --vm vm0 -- perl -e 'semctl(semget(0x9999, 1, 03600) // die, 0, 16, 1) or die'
vshmem run --vm vm1 -- perl hold.pl 0x9999 -1 >/tmp/held 2>&1 &
eventually "vm1 holds a semaphore" grep -q held /tmp/held
old=$(domain vm1)
code "it is started anew" 0 vshmem restart vm1 --timeout 400
code "as another domain" 0 test "$(domain vm1)" -gt "$old"
code "what it held is undone" 0 timeout 120 vshmem run --vm vm0 -- perl take.pl
code "it has the pool again" 0 vshmem run --vm vm1 -- perl -e 'exit !defined semget(0x9999, 1, 0)'

# One that crashes.
vshmem exec vm0 -- sh -c 'echo c >/proc/sysrq-trigger' >/dev/null 2>&1
eventually "a domain that crashes is shown so" sh -c 'vshmem ps 2>/dev/null | grep -q "vm0 .*died"'
code "it takes no commands" 125 vshmem exec vm0 -- true
# Of which nobody else need be told.
rm -f /var/log/xen/console/guest-vshmem-default-vm0.log
vshmem pool create /tmp/other --size 1M
contains "the other one is given no further pool so" "vm1 is a domain of Xen" \
    "$(vshmem grant /tmp/other vm1 --as other 2>&1)"
rm /tmp/other

# shellcheck disable=SC2046 # one word, or none
kill -9 $(ps -o pid,args | sed -n 's/^ *\([0-9]*\) .*[x]en own cluster.*/\1/p')
code "all is stopped, though who owned the pool was killed" 0 vshmem down
eventually "and nothing is left" sh -c '! xl list | grep -q vshmem-'
equal "of it" "" "$(left)"
