# shellcheck shell=sh
# A pool of dom0's, for guests that are started after it was announced.
serve work 8M vm0,vm1
need vm0 vm1
contains "xl knows the guests" vm1 "$(xl list)"
joined vm0 vm1
for name in vm0 vm1; do
    have work "$name"
    eventually "and is ready, says XenStore" grep -q "Domain $(id_of "$name") is ready: work" /tmp/own.work
    contains "pool ls in $name" "cached, sleep" "$(ask "$name" 'vshmem pool ls')"
done

ask vm0 "$(on_pool work "perl tell.pl 'good morning'")"
equal "a message of vm0 arrives in vm1" "good morning" "$(ask vm1 "$(on_pool work "python3 hear.py")")"
