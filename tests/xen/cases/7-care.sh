# shellcheck shell=sh
# shellcheck disable=SC2016 # other shells expand what is quoted
# What a killed process held comes free though nobody else of its domain looks: `own` and `join` do. And what is left when they are
# killed themselves.
need vm0 vm1
serve care 4M vm0,vm1
joined vm0 vm1
for name in vm0 vm1; do
    eventually "$name has the pool" ask "$name" 'test -c /dev/vshmem-xen/care'
done
ask vm1 "$(on_pool care "perl -e 'semctl(semget(0x9999, 1, 03600) // die, 0, 16, 1) or die'")"

# freed WHERE COMMAND: vm1 waits for what a process of the other domain holds, until the command kills that
freed() {
    ask vm1 "($(on_pool care "perl take.pl")) >/tmp/taken 2>&1 &"
    eventually "vm1 waits for what $1 holds" ask vm1 'vshmem ipcs --waiters --pool care | grep -q "alive .*semaphore 0"'
    # By the clock of vm1: domains' clocks differ.
    before=$(ask vm1 'date +%s')
    eval "$2"
    eventually "vm1 has what a process of $1 held that was killed" ask vm1 'grep -q "^[0-9]" /tmp/taken'
    took=$(($(ask vm1 'cat /tmp/taken') - before))
    # A second, and what the command takes to get there, on an emulated machine that others keep busy.
    if [ "$took" -le 10 ]; then
        passed "$took seconds after the command was given"
    else
        failed "within a second of its death" "it took $took seconds"
    fi
}
ask vm0 "($(on_pool care "perl hold.pl")) >/tmp/held 2>&1 &"
eventually "vm0 holds a semaphore" ask vm0 'grep -qx held /tmp/held'
freed vm0 "ask vm0 'killall -KILL perl'"

(cd /tests && VSHMEM_POOL=care LD_PRELOAD=/lib/libvshmem.so forbid perl hold.pl >/tmp/held 2>&1) &
eventually "dom0 holds it" grep -qx held /tmp/held
freed dom0 "killall -KILL perl"

# The owner is killed: the pool stays, and the next one serves it.
end_owner care
code "programs go on without the owner's process" 0 ask vm0 "$(on_pool care "perl -e 'exit !defined semget(0x9999, 1, 0600)'")"
serve care 4M vm0,vm1
code "the pool is the same" 0 ask vm0 "$(on_pool care "perl -e 'exit !defined semget(0x9999, 1, 0600)'")"

# The guest's is killed, and meanwhile the owner makes the pool anew.
ask vm0 'kill -KILL $(cat /tmp/join.pid); rm /tmp/join.pid'
code "programs go on without the guest's process" 0 ask vm0 "$(on_pool care "perl -e 'exit !defined semget(0x9999, 1, 0600)'")"
withdraw care
serve care 4M vm0,vm1
(cd /tests && VSHMEM_POOL=care LD_PRELOAD=/lib/libvshmem.so forbid perl -e 'msgget(0x9a, 01600) // die') || failed "dom0 makes a queue"
ask vm0 "$(on_pool care "perl -e 'exit !defined msgget(0x9a, 0)'")" && failed "vm0 still has the old pool"
joined vm0
eventually "vm0 has the new pool" ask vm0 "$(on_pool care "perl -e 'exit !defined msgget(0x9a, 0)'")"
contains "and says that it was attached" "The pool care of domain 0 attached." "$(ask vm0 'cat /tmp/join')"

# The same, and the pool is not made again.
ask vm0 'kill -KILL $(cat /tmp/join.pid); rm /tmp/join.pid'
withdraw care
joined vm0
eventually "a pool that was withdrawn meanwhile goes" ask vm0 'test ! -e /dev/vshmem-xen/care'

# A guest that has no process to let go of what it is to have no more.
serve care 4M vm0,vm1
eventually "vm0 has the pool" ask vm0 'test -c /dev/vshmem-xen/care'
ask vm0 "($(on_pool care "perl -e 'semctl(semget(0x9999, 1, 03600) // die, 0, 16, 1) or die'"))"
ask vm0 "($(on_pool care "perl hold.pl")) >/tmp/held 2>&1 &"
eventually "and holds a semaphore" ask vm0 'grep -qx held /tmp/held'
ask vm0 'kill -KILL $(cat /tmp/join.pid); rm /tmp/join.pid'
end_owner care
serve care 4M vm1
eventually "the owner says that it does not let go" grep -q "Domain $(id_of vm0) does not let go of the pool care" /tmp/own.care
eventually "vm1 has the pool" ask vm1 'test -c /dev/vshmem-xen/care'
# Its processes live: nobody is to have what they hold.
code "what it holds it holds" 1 ask vm1 "$(on_pool care "perl -e 'exit !semop(semget(0x9999, 1, 0) // die, pack(\"s!3\", 0, -1, 04000))'")"
# Nor does the next owner take them for dead.
end_owner care
serve care 4M vm1
eventually "the next owner has looked around" sh -c 'sleep 5; grep -q "is there" /tmp/own.care'
code "what it holds it holds still" 1 ask vm1 "$(on_pool care "perl -e 'exit !semop(semget(0x9999, 1, 0) // die, pack(\"s!3\", 0, -1, 04000))'")"
joined vm0
eventually "another one lets go" grep -q "care is taken back from domain $(id_of vm0)" /tmp/own.care
eventually "of the device file, too" ask vm0 'test ! -e /dev/vshmem-xen/care'
ask vm1 "($(on_pool care "perl take.pl")) >/tmp/taken 2>&1 &"
eventually "then what it held is free" ask vm1 'grep -q "^[0-9]" /tmp/taken'
withdraw care
