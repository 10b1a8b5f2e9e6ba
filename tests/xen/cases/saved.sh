# shellcheck shell=sh
# shellcheck disable=SC2016 # other shells expand what is quoted
# A guest with a pool is saved: it detaches the pool before. When it is restored, it is given the pool again.
create vm3 pvh 220
# The root file system may take half of dom0's memory, and has most of that already.
mkdir -p /saved
mount -t tmpfs -o size=300m saved /saved
need vm0 vm3
serve saved 4M vm0,vm3
joined vm0 vm3
have saved vm0 vm3
ask vm0 "$(on_pool saved "perl -e 'semctl(semget(0x9999, 1, 03600) // die, 0, 16, 1) or die'")"
hold saved vm3
ask vm3 "($(on_pool saved "perl load.pl"); echo ended \$?) >/tmp/load 2>&1 &"
ask vm3 "($(on_pool saved "perl look.pl"); echo ended \$?) >/tmp/looks 2>&1 &"
ask vm3 "($(on_pool saved "perl wait.pl")) >/tmp/waited 2>&1 &"
eventually "another waits there, a third reads" ask vm3 \
    "grep -qx attached /tmp/looks && \
        vshmem ipcs --waiters --pool saved | grep -q '@vm3 .*alive .*semaphore 0'"
ask vm0 "($(on_pool saved "perl take.pl")) >/tmp/taken 2>&1 &"
old=$(id_of vm3)
code "xl saves it" 0 xl save vm3 /saved/vm3
eventually "dom0 takes the pool back" grep -q "saved is taken back from domain $old" /tmp/own.saved
eventually "nobody waits for what it held" ask vm0 'grep -q "^[0-9]" /tmp/taken'

code "xl restores it" 0 xl restore -e /saved/vm3
umount /saved
xl domid vm3 >/tmp/vm3.id
eventually "as another domain" grep -q "saved is given to domain $(id_of vm3)" /tmp/own.saved
eventually "its program that read a segment got SIGBUS" ask vm3 'grep -qx "ended 135" /tmp/looks'
eventually "the one that waited was told that it is gone" ask vm3 \
    'grep -q "semop: Identifier removed" /tmp/waited'
eventually "the one at work did not go on" ask vm3 'grep -q "^ended " /tmp/load'
eventually "it is given the pool again" grep -q "Domain $(id_of vm3) is ready: saved" /tmp/own.saved
code "and its programs use it" 0 ask vm3 "$(on_pool saved "perl -e 'exit !defined semget(0x9999, 1, 0)'")"
