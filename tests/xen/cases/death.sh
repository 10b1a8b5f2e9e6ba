# shellcheck shell=sh
# shellcheck disable=SC2016 # other shells expand what is quoted
# Processes are killed, and a domain is destroyed, in the middle of operations. No other process waits for
# them.
need vm0 vm1
[ -c /dev/vshmem-xen/work ] || serve work 8M vm0,vm1
joined vm0 vm1
have work vm0 vm1

# A mutex with SEM_UNDO, a counter beside it, and two domains that take it by turns.
for name in vm0 vm1; do
    ask "$name" "($(on_pool work "perl load.pl")) >/tmp/load 2>&1 & echo \$! >/tmp/load.pid"
done
eventually "vm0 works" goes_on vm0
eventually "vm1 works" goes_on vm1
for round in 1 2 3; do
    ask vm0 "killall -KILL perl; ($(on_pool work "perl load.pl")) >/tmp/load 2>&1 &"
    eventually "vm1 works on after SIGKILL in vm0 ($round)" goes_on vm1
done
eventually "and so does vm0" goes_on vm0

dead=$(id_of vm0)
destroy vm0
eventually "dom0 takes the pool back from the domain that was destroyed" grep \
    -q "work is taken back from domain $dead" /tmp/own.work
code "its keys are gone" 1 xenstore-ls "/local/domain/0/data/vshmem/$dead"
eventually "vm1 works on after xl destroy" goes_on vm1

# One of the same name is another domain, and is given the pool, too.
need vm0
joined vm0
eventually "a new vm0 has the pool" ask vm0 'test -c /dev/vshmem-xen/work'
ask vm0 "($(on_pool work "perl load.pl")) >/tmp/load 2>&1 &"
eventually "and works in it" goes_on vm0
ask vm1 "killall perl; ($(on_pool work "perl load.pl"); echo ended \$?) >/tmp/load 2>&1 &"
eventually "vm1 works, too" goes_on vm1

# What programs see of it when the pool is withdrawn.
ask vm1 "($(on_pool work "perl look.pl"); echo ended \$?) >/tmp/looks 2>&1 &"
eventually "a program has a segment attached" ask vm1 'grep -qx attached /tmp/looks'
ask vm1 "($(on_pool work "perl wait.pl")) >/tmp/waited 2>&1 &"
eventually "another one waits" ask vm1 \
    'vshmem ipcs --waiters --pool work | grep -q "@vm1 .*alive .*semaphore 0"'
withdraw work
eventually "who reads a segment of a pool that is withdrawn gets SIGBUS" ask vm1 \
    'grep -qx "ended 135" /tmp/looks'
eventually "who waits is told that it is gone" ask vm1 'grep -q "semop: Identifier removed" /tmp/waited'
eventually "who works with it doesn't go on" ask vm1 'grep -q "^ended " /tmp/load'
eventually "and the pool is gone from vm1" ask vm1 'test ! -e /dev/vshmem-xen/work'
eventually "after the last withdrawal nothing is announced" \
    sh -c '! xenstore-ls /local/domain/0/data/vshmem | grep -q work'
