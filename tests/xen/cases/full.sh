# shellcheck shell=sh
# shellcheck disable=SC2016 # other shells expand what is quoted
# A grant table that is full for one more domain, and domains that have ended but are preserved.
need vm0 vm1
# The table has 32768 entries.
serve large 96M vm0,vm1
joined vm0 vm1
eventually "one of two is not given what the grant table has no room for" grep \
    -q "this domain's grant table is full" /tmp/own.large
eventually "the other one is ready" grep -q "is ready: large" /tmp/own.large
first=vm0 second=vm1
[ -n "$(ask vm0 'ls /dev/vshmem-xen | grep large')" ] || first=vm1 second=vm0
code "and works" 0 ask $first "$(on_pool large "perl -e 'exit !defined semget(0x9999, 1, 03600)'")"
code "the second one has nothing" 1 ask $second 'ls /dev/vshmem-xen/large'
equal "it is said once" 1 "$(sleep 12; grep -c "is full" /tmp/own.large)"

# The domain is destroyed while all is mapped; its part of the table is free soon.
destroy $first
dead=$(date +%s)
eventually "the second one is given the pool when the first is gone" grep \
    -q "Domain $(id_of $second) is ready: large" /tmp/own.large
took=$(($(date +%s) - dead))
if [ $took -le 60 ]; then
    passed "after $took seconds"
else
    failed "within a minute" "it took $took seconds"
fi
code "it has what the first one made" 0 ask $second \
    "$(on_pool large "perl -e 'exit !defined semget(0x9999, 1, 0)'")"
withdraw large

# A guest whose kernel crashes, and that is preserved.
need vm0 vm1
serve kept 4M vm0,vm1
joined vm0 vm1
have kept vm0 vm1
ask vm0 "$(on_pool kept "perl -e 'semctl(semget(0x9999, 1, 03600) // die, 0, 16, 1) or die'")"
hold kept vm1
take kept vm0
crashed=$(id_of vm1)
xenstore-write "/local/domain/$crashed/data/ask" "crash echo c >/proc/sysrq-trigger"
eventually "dom0 takes the pool back from a guest that has crashed" grep \
    -q "kept is taken back from domain $crashed" /tmp/own.kept
contains "which still is there" " $crashed " "$(xl list)"
eventually "vm0 has what it held" ask vm0 'grep -q "^[0-9]" /tmp/taken'
destroy vm1
# Its last words are meant to be there.
rm -f /var/log/xen/console/guest-vm1.log
withdraw kept
