# shellcheck shell=sh
# shellcheck disable=SC2016 # other shells expand what is quoted
# A PV guest: it can own a pool, as a PV dom0 does, but attach none, and is told so.
need vm0
create vm4 pv
need vm4
serve kinds 4M vm0,vm4
joined vm0 vm4
have kinds vm0
eventually "a PV guest is told that it can't" ask vm4 'grep -q "this is a PV domain" /tmp/join'
code "and has no device file" 1 ask vm4 'ls /dev/vshmem-xen/kinds'
withdraw kinds

ask vm4 "vshmem xen own paravirtual --size 4M --to $(id_of vm0) >/tmp/own 2>&1 & echo \$! >/tmp/own.pid"
eventually "it owns one" ask vm4 'test -c /dev/vshmem-xen/paravirtual'
ask vm0 "vshmem xen join --owner $(id_of vm4) >/tmp/join.pv 2>&1 & echo \$! >/tmp/join.pv.pid"
eventually "which vm0 has" ask vm0 'test -c /dev/vshmem-xen/paravirtual'
ask vm4 "$(on_pool paravirtual "perl send.pl")" || failed "perl sends"
equal "perl in a PV guest sends to python in a PVH one" "65536 1000 5" \
    "$(ask vm0 "$(on_pool paravirtual "python3 receive.py")" | xargs)"
ask vm4 'kill $(cat /tmp/own.pid)'
eventually "it withdraws it" ask vm0 'test ! -e /dev/vshmem-xen/paravirtual'
ask vm0 'kill $(cat /tmp/join.pv.pid)'
destroy vm4
