# shellcheck shell=sh
# shellcheck disable=SC2016 # other shells expand what is quoted
# `own` and `join` reap after killed processes of their domains, also if no other process there uses the pool.
# And what remains when they are killed themselves.
need vm0 vm1
serve reap 4M vm0,vm1
joined vm0 vm1
have reap vm0 vm1
ask vm1 "$(on_pool reap "perl -e 'semctl(semget(0x9999, 1, 03600) // die, 0, 16, 1) or die'")"

# freed WHERE COMMAND: vm1 waits for a semaphore that a process of WHERE holds, until the command kills that
# process
freed() {
    ask vm1 "($(on_pool reap "perl take.pl")) >/tmp/taken 2>&1 &"
    eventually "vm1 waits for what $1 holds" ask vm1 \
        'vshmem ipcs --waiters --pool reap | grep -q "alive .*semaphore 0"'
    # By the clock of vm1, since domains' clocks differ.
    before=$(ask vm1 'date +%s')
    eval "$2"
    eventually "vm1 has what a process of $1 held that was killed" ask vm1 'grep -q "^[0-9]" /tmp/taken'
    took=$(($(ask vm1 'cat /tmp/taken') - before))
    # A second, and the time that the command takes on a busy emulated machine.
    if [ "$took" -le 10 ]; then
        passed "$took seconds after the command was given"
    else
        failed "within a second of its death" "it took $took seconds"
    fi
}
hold reap vm0
freed vm0 "ask vm0 'killall -KILL perl'"

(cd /tests && VSHMEM_POOL=reap LD_PRELOAD=/lib/libvshmem.so forbid perl hold.pl 0x9999 -1 >/tmp/held 2>&1) &
eventually "dom0 holds it" grep -qx held /tmp/held
freed dom0 "killall -KILL perl"

# The owner is killed: the pool stays, and the next one serves it.
end_owner reap
code "programs go on without the owner's process" 0 ask vm0 \
    "$(on_pool reap "perl -e 'exit !defined semget(0x9999, 1, 0600)'")"
serve reap 4M vm0,vm1
code "the pool is the same" 0 ask vm0 "$(on_pool reap "perl -e 'exit !defined semget(0x9999, 1, 0600)'")"

# The guest's process is killed, and the owner creates the pool again meanwhile.
ask vm0 'kill -KILL $(cat /tmp/join.pid); rm /tmp/join.pid'
code "programs go on without the guest's process" 0 ask vm0 \
    "$(on_pool reap "perl -e 'exit !defined semget(0x9999, 1, 0600)'")"
withdraw reap
serve reap 4M vm0,vm1
(cd /tests && VSHMEM_POOL=reap LD_PRELOAD=/lib/libvshmem.so forbid perl -e 'msgget(0x9a, 01600) // die') ||
    failed "dom0 makes a queue"
ask vm0 "$(on_pool reap "perl -e 'exit !defined msgget(0x9a, 0)'")" && failed "vm0 still has the old pool"
joined vm0
eventually "vm0 has the new pool" ask vm0 "$(on_pool reap "perl -e 'exit !defined msgget(0x9a, 0)'")"
contains "and says that it was attached" "The pool reap of domain 0 attached." "$(ask vm0 'cat /tmp/join')"

# The same, but the pool is not created again.
ask vm0 'kill -KILL $(cat /tmp/join.pid); rm /tmp/join.pid'
withdraw reap
joined vm0
eventually "a pool that was withdrawn meanwhile goes" ask vm0 'test ! -e /dev/vshmem-xen/reap'

# The pool is taken back from a guest without a process that could detach it.
serve reap 4M vm0,vm1
have reap vm0
ask vm0 "($(on_pool reap "perl -e 'semctl(semget(0x9999, 1, 03600) // die, 0, 16, 1) or die'"))"
hold reap vm0
ask vm0 'kill -KILL $(cat /tmp/join.pid); rm /tmp/join.pid'
end_owner reap
serve reap 4M vm1
eventually "the owner says that it does not let go" grep \
    -q "Domain $(id_of vm0) does not let go of the pool reap" /tmp/own.reap
have reap vm1
# Its processes are alive, and keep what they hold.
code "what it holds it holds" 1 ask vm1 "$(on_pool reap \
    "perl -e 'exit !semop(semget(0x9999, 1, 0) // die, pack(\"s!3\", 0, -1, 04000))'")"
# The next owner does not consider them dead either.
end_owner reap
serve reap 4M vm1
eventually "the next owner has looked around" sh -c 'sleep 5; grep -q "is there" /tmp/own.reap'
code "what it holds it holds still" 1 ask vm1 \
    "$(on_pool reap "perl -e 'exit !semop(semget(0x9999, 1, 0) // die, pack(\"s!3\", 0, -1, 04000))'")"
joined vm0
eventually "another one lets go" grep -q "reap is taken back from domain $(id_of vm0)" /tmp/own.reap
eventually "of the device file, too" ask vm0 'test ! -e /dev/vshmem-xen/reap'
ask vm1 "($(on_pool reap "perl take.pl")) >/tmp/taken 2>&1 &"
eventually "then what it held is free" ask vm1 'grep -q "^[0-9]" /tmp/taken'
withdraw reap
