# shellcheck shell=sh
# shellcheck disable=SC2016 # other shells expand what is quoted
# System V IPC between domains, by programs that know nothing of Vshmem. A filter forbids them the kernel's
# calls.
need vm0 vm1
[ -c /dev/vshmem-xen/work ] || serve work 8M vm0,vm1
joined vm0 vm1
have work vm0 vm1

ask vm0 "$(on_pool work "perl send.pl")" || failed "perl sends"
equal "perl in one domain sends to python in the other" "65536 1000 5" \
    "$(ask vm1 "$(on_pool work "python3 receive.py")" | xargs)"

for rank in 0 1; do
    ask vm$rank "($(on_pool work "perl turns.pl $rank 50")) >/tmp/turns 2>&1 &"
done
eventually "two domains take turns with semaphores and count in a segment" ask vm0 \
    'test "$(cat /tmp/turns)" = 100'

ask vm1 "($(on_pool work "perl turns.pl 1 50")) >/tmp/turns 2>&1 &"
(cd /tests && VSHMEM_POOL=work LD_PRELOAD=/lib/libvshmem.so forbid perl turns.pl 0 50 >/tmp/turns 2>&1) &
eventually "and so do the host, which is dom0, and a guest" grep -qx 100 /tmp/turns
