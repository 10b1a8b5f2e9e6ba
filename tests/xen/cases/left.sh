# shellcheck shell=sh
# shellcheck disable=SC2016 # other shells expand what is quoted
# A process that owns a pool is killed: what it leaves, and what happens until there is another one.
need vm0 vm1 vm2
serve left 8M vm0,vm1,vm2
joined vm0 vm1 vm2
for name in vm0 vm1 vm2; do
    have left "$name"
    eventually "and is ready" grep -q "Domain $(id_of "$name") is ready: left" /tmp/own.left
done
ask vm0 "$(on_pool left "perl -e 'semctl(semget(0x9999, 1, 03600) // die, 0, 16, 1) or die'")"
hold left vm1
take left vm0

code "another process can't own it, too" 125 vshmem xen own left --size 8M --to vm0
contains "and says why" "is served by another process" "$(cat /tmp/out)"
code "nor withdraw it" 125 vshmem xen withdraw left
code "nor can another domain" 125 ask vm0 'vshmem xen withdraw left'
contains "which is told why" "another domain's" "$(cat /tmp/out)"

end_owner left
dead=$(id_of vm1)
destroy vm1
# Not for vm2 any more.
serve left 8M vm0
eventually "the next process takes it back from who died meanwhile" grep \
    -q "left is taken back from domain $dead" /tmp/own.left
eventually "vm0 has what it held" ask vm0 'grep -q "^[0-9]" /tmp/taken'
code "its keys are gone" 1 xenstore-ls "/local/domain/0/data/vshmem/$dead"
# It detaches the pool before its processes count as dead.
eventually "and from who is not to have it any more" grep -q "left is taken back from domain $(id_of vm2)" \
    /tmp/own.left
eventually "which lets go of it" ask vm2 'test ! -e /dev/vshmem-xen/left'
code "nothing is announced to it" 1 xenstore-read "/local/domain/0/data/vshmem/$(id_of vm2)/left"
equal "vm0 has not noticed" "" "$(grep "Domain $(id_of vm0) has let go" /tmp/own.left)"
code "and goes on" 0 ask vm0 "$(on_pool left "perl -e 'exit !defined semget(0x9999, 1, 0600)'")"

end_owner left
contains "another size is another pool" "remove it by \`vshmem xen withdraw left\`" \
    "$(vshmem xen own left --size 4M --to vm0 2>&1)"
code "it can be removed, though nobody serves it" 0 vshmem xen withdraw left
eventually "it is gone in vm0" ask vm0 'test ! -e /dev/vshmem-xen/left'
code "its keys are gone" 1 xenstore-read "/local/domain/0/data/vshmem/$(id_of vm0)/left"
code "it can't be removed twice" 125 vshmem xen withdraw left
