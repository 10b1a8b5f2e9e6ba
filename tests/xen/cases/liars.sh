# shellcheck shell=sh
# shellcheck disable=SC2016 # other shells expand what is quoted
# Root of a guest is hostile: as an owner, by false announcements; as a recipient, by false answers. Others go
# on.
need vm0 vm1
serve work 8M vm0,vm1
joined vm0 vm1
have work vm0 vm1
victim=$(id_of vm0)
liar=$(id_of vm1)
ask vm0 "($(on_pool work "perl load.pl"); echo ended \$?) >/tmp/load 2>&1 &"
eventually "vm0 works with dom0's pool" goes_on vm0
ask vm0 "vshmem xen join --owner $liar --at-most 64M >/tmp/join.liar 2>&1 & echo \$! >/tmp/join.liar.pid"

# announce POOL TEXT: as the liar
announce() {
    ask vm1 "announce $victim '$1' '$2'"
}
# What is announced, and how it is refused.
nonsense="its announcement can't be understood yet"
no_grant="domain $liar has not granted it to this domain"
long=$(printf '%0100d' 7)
cat >/tmp/lies <<L
lie0::$nonsense
lie1:x:$nonsense
lie2:4194304 1:$nonsense
lie3:4194304 1 $(seq -s ' ' 100 164):$nonsense
lie4:4194304 -1 9:$nonsense
lie5:99999999999999999999 1 9:$nonsense
lie6:0 1 9:Invalid argument
lie7:5000 1 9:Invalid argument
lie8:8388608 1 9:Invalid argument
lie9:18446744073709547520 1 9:all together would be larger than 64 MiB
lieA:268435456 1 9:all together would be larger than 64 MiB
lieB:4194304 1 9:$no_grant
lieC:4194304 4294967295 4294967295:$no_grant
lieD:4194304 0 0:$no_grant
work:4194304 1 9:has that name here
$long:4194304 1 9:is no name for a pool
L
ask vm1 "$(awk -F: -v guest="$victim" '{ printf "announce %s \"%s\" \"%s\"; ", guest, $1, $2 }' /tmp/lies)"
eventually "of $(grep -c . /tmp/lies) false announcements, all are refused" ask vm0 \
    "test \$(grep -c 'is not attached' /tmp/join.liar) -eq $(grep -c . /tmp/lies)"
# An answer has no room for all.
for i in 0 1 2 3; do
    ask vm0 "cut -c 1-320 /tmp/join.liar | sed -n '$((i * 5 + 1)),$((i * 5 + 5))p'"
done >/tmp/refusals
while IFS=: read -r pool text why; do
    contains "'$(echo "$pool $text" | cut -c 1-40)' is" "$why" \
        "$(grep -F "The pool $pool is not attached" /tmp/refusals)"
done </tmp/lies

# Real pages, of what is no pool.
ask vm1 "(forge $victim 4194304 >/tmp/empty; echo ended \$? >>/tmp/empty) 2>>/tmp/empty &"
eventually "the liar grants pages" ask vm1 'grep -q "^4194304 " /tmp/empty'
announce empty "$(ask vm1 'head -n 1 /tmp/empty')"
eventually "eight pages of zeros, 1024 times, are attached" ask vm0 'test -c /dev/vshmem-xen/empty'
eventually "and are seen to be no pool" ask vm0 'grep -q "Nobody cleans up in the pool empty" /tmp/join.liar'
code "programs are told so" 1 ask vm0 "$(on_pool empty "perl -e 'exit !defined semget(0x98, 1, 01600)'")"
code "and users" 125 ask vm0 'vshmem ipcs --pool empty'

# What looks like a pool, while it changes.
ask vm1 "vshmem xen own real --size 2M --to 0 >/tmp/own 2>&1 & echo \$! >/tmp/own.pid"
eventually "the liar makes a pool" ask vm1 'test -c /dev/vshmem-xen/real'
ask vm1 "$(on_pool real "perl many.pl")"
ask vm1 "(forge $victim 2097152 real >/tmp/false; echo ended \$? >>/tmp/false) 2>>/tmp/false &"
eventually "and grants a forged one" ask vm1 'grep -q "^2097152 " /tmp/false'
announce false "$(ask vm1 'head -n 1 /tmp/false')"
eventually "it is attached" ask vm0 'test -c /dev/vshmem-xen/false'
LIMIT=400 ask vm0 "for i in 1 2 3; do $(on_pool false \
    "timeout 60 perl false.pl >/tmp/perl 2>&1"); echo perl \$?; \
    timeout 60 vshmem ipcs --pool false >/tmp/ipcs 2>&1; echo ipcs \$?; \
    timeout 60 vshmem check false >/tmp/check 2>&1; echo check \$?; done" >/tmp/calls
equal "programs, ipcs and check come to an end on it" "3 check, 3 ipcs, 3 perl" \
    "$(sed -n 's/^\([a-z]*\) [0-9]*$/\1/p' /tmp/calls | sort | uniq -c |
    awk '{ printf "%s%s %s", sep, $1, $2; sep = ", " }')"
sed 's/^/        /' /tmp/calls
ask vm1 "xenstore-rm data/vshmem/$victim/false"
eventually "it is let go" ask vm0 'test ! -e /dev/vshmem-xen/false'
# 124: it took too long; from 128 on: a signal ended it.
bad=$(awk '$2 == 124 || $2 >= 126' /tmp/calls | sort | uniq -c)
equal "nothing is killed or held by it" "" "$bad"
eventually "programs in dom0's pool go on" goes_on vm0
equal "what the liar can't reach says nothing of it" "" \
    "$(ask vm0 "grep -v -e '^The pool' -e '^Nobody' /tmp/join.liar")"
code "the front end still runs" 0 ask vm0 'kill -0 $(cat /tmp/join.liar.pid)'
equal "vm0's kernel does not complain" "" "$(ask vm0 'dmesg | grep -E "BUG|WARN|Oops|Call Trace"')"

# As many as XenStore lets a guest announce.
LIMIT=120 ask vm1 "for i in \$(seq 1 60); do announce $victim $long\$i 1; done 2>/tmp/quota; \
    grep -c 'could not write' /tmp/quota" >/tmp/over
equal "XenStore bounds what a guest announces" yes "$([ "$(cat /tmp/over)" -gt 0 ] && echo yes)"
eventually "of which each is refused" ask vm0 \
    "test \$(grep -c 'is not attached' /tmp/join.liar) -ge $(($(grep -c . /tmp/lies) + 60 - $(cat \
    /tmp/over)))"
code "the front end goes on" 0 ask vm0 'kill -0 $(cat /tmp/join.liar.pid)'
code "dom0's pool is still joined" 0 ask vm0 'kill -0 $(cat /tmp/join.pid)'
ask vm1 "kill \$(cat /tmp/own.pid); killall forge; xenstore-rm data/vshmem/$victim"

# To dom0: it has the pool, it has not, and in turn.
before=$(grep -c . /tmp/own.work)
LIMIT=120 ask vm1 "for i in \$(seq 1 100); do \
    xenstore-write data/vshmem/0/work no; xenstore-write data/vshmem/0/work VshmemReady; done"
more=$(($(grep -c . /tmp/own.work) - before))
if [ "$more" -le 12 ]; then
    passed "dom0 hears one that wavers 200 times $more times"
else
    failed "dom0 hears one that wavers less and less" "$more sentences about it"
fi
eventually "programs in dom0's pool go on" goes_on vm0
ask vm0 'killall perl'
withdraw work
eventually "vm0 has let go of all" ask vm0 'test -z "$(ls /dev/vshmem-xen 2>/dev/null)"'
