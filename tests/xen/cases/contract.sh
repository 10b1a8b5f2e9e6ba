# shellcheck shell=sh
# The transport's contract, in the domain that owns a pool and in one that was given it. It writes over the
# pool's last pages.
need vm0
serve contract 4M vm0
contract="transport-contract contract >/tmp/contract 2>&1; code=\$?; \
    grep -v ^ok /tmp/contract; echo \$(grep -c ^ok /tmp/contract) kept; exit \$code"

code "the transport keeps its contract in dom0" 0 sh -c "$contract"
contains "and it is the transport of Xen" "transport xen" "$(cat /tmp/out)"
sed -n 's/^/        /; 2,$p' /tmp/out

joined vm0
have contract vm0
code "the transport keeps its contract in a guest" 0 ask vm0 "$contract"
contains "by the same transport" "transport xen" "$(cat /tmp/out)"
sed -n 's/^/        /; 2,$p' /tmp/out

create vm2 # needed later
withdraw contract
eventually "a pool that is withdrawn goes from the guest, too" ask vm0 'test ! -e /dev/vshmem-xen/contract'
contains "and the guest says why" "was let go, as domain 0 has withdrawn it" "$(ask vm0 'cat /tmp/join')"
