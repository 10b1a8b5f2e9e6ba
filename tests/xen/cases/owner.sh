# shellcheck shell=sh
# shellcheck disable=SC2016 # other shells expand what is quoted
# A guest owns a pool and gives it to two others. One of them is created after the announcement: XenStore
# drops permissions for domains that don't exist, and a guest is not notified of domains.
need vm0 vm1
newest=$(xl list | awk 'NR > 1 && $2 > newest { newest = $2 } END { print newest }')
[ -z "$(id_of vm2)" ] || destroy vm2
owner=$(id_of vm1)
contains "a guest names domains by id" "this domain is not told which one is called" \
    "$(ask vm1 'vshmem xen own theirs --to vm0 2>&1')"
# It may have to be started more than once.
later=$(seq -s, $((newest + 1)) $((newest + 9)))
ask vm1 "vshmem xen own theirs --size 4M --to $(id_of vm0),$later >/tmp/own 2>&1 & echo \$! >/tmp/own.pid"
eventually "it is given to some that do not exist yet" ask vm1 \
    "grep -q 'theirs is given to domain $((newest + 9))' /tmp/own"
need vm2
contains "of which vm2 is one" ",$(id_of vm2)," ",$later,"
eventually "a guest owns a pool" ask vm1 'test -c /dev/vshmem-xen/theirs'
for name in vm0 vm2; do
    ask "$name" "vshmem xen join --owner $owner >/tmp/join.theirs 2>&1 & echo \$! >/tmp/join.theirs.pid"
    eventually "$name has it" ask "$name" 'test -c /dev/vshmem-xen/theirs'
    eventually "and the owner knows" ask vm1 "grep -q 'Domain $(id_of "$name") is ready: theirs' /tmp/own"
done
contains "dom0, which is PV and was not given it, is told so" \
    "Domain $owner has given no pool to this one (domain 0)" \
    "$(vshmem xen join --owner "$owner" --once 1 2>&1)"

ask vm0 "$(on_pool theirs "perl send.pl")" || failed "perl sends"
equal "perl in one guest sends to python in the other" "65536 1000 5" \
    "$(ask vm2 "$(on_pool theirs "python3 receive.py")" | xargs)"
ask vm2 "($(on_pool theirs "perl wait.pl")) >/tmp/waited 2>&1 &"
eventually "somebody waits in vm2" ask vm1 \
    'vshmem ipcs --waiters --pool theirs | grep -q "@vm2 .*alive .*semaphore 0"'
ask vm0 "$(on_pool theirs "perl -e 'semop(semget(0x5555, 1, 0) // die, pack(\"s!3\", 0, 1, 0)) or die'")"
eventually "it goes on when vm0 lets it" ask vm2 'grep -qx woken /tmp/waited'

# A domain that dies: the owner sees it by its keys alone.
for name in vm0 vm2; do
    ask "$name" "($(on_pool theirs "perl load.pl"); echo ended \$?) >/tmp/load 2>&1 &"
done
eventually "vm0 works" goes_on vm0
eventually "vm2 works" goes_on vm2
dead=$(id_of vm2)
destroy vm2
eventually "the owner sees that vm2 is gone" ask vm1 "grep -q 'Domain $dead has let go: theirs' /tmp/own"
eventually "vm0 works on" goes_on vm0

# What others have mapped can't be saved with it.
mkdir -p /saved
mount -t tmpfs -o size=350m saved /saved
code "a domain that owns a pool which others have is not saved" 1 xl save vm1 /saved/vm1
umount /saved
contains "as its driver says" "can't be saved" "$(ask vm1 'dmesg | tail -n 20')"
eventually "it goes on" goes_on vm0
contains "and still owns the pool" theirs "$(ask vm1 'ls /dev/vshmem-xen')"

# And the owner dies.
ask vm0 "($(on_pool theirs "perl wait.pl")) >/tmp/waited 2>&1 &"
eventually "somebody waits in vm0" ask vm1 \
    'vshmem ipcs --waiters --pool theirs | grep -q "@vm0 .*alive .*semaphore 0"'
destroy vm1
eventually "the guest lets go of a pool whose owner was destroyed" ask vm0 'test ! -e /dev/vshmem-xen/theirs'
eventually "who waits is told that it is gone" ask vm0 'grep -q "semop: Identifier removed" /tmp/waited'
eventually "who works with it doesn't go on" ask vm0 'grep -q "^ended " /tmp/load'
ask vm0 'kill $(cat /tmp/join.theirs.pid)'
