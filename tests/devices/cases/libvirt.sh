# shellcheck shell=bash
# shellcheck disable=SC2154 # inside.sh sets what it uses
# A machine that libvirt starts on KVM: with its memory in reserved pages, and a virtual function of the
# network card.

if ! command -v libvirtd >"$work/out" || ! command -v virsh >"$work/out"; then
    echo "skip    machines of libvirt: there is none"
    exit 0
fi
# shellcheck source=tests/lib/libvirt.sh
. "$root/tests/lib/libvirt.sh"
own_libvirt
need_card
echo 160 >/proc/sys/vm/nr_hugepages
equal "there are pages of 2 MiB" 160 "$(free_pages)"

cluster domains "\"vf of $pf\""
sed -i '1a via = "libvirt"
s/^\[\[machines\]\]/[pages]\nmachines = "2M"\ninsist = "strict"\n&/' "$work/domains.toml"
domain=vshmem-domains-vm0
code "libvirt starts a machine" 0 up domains
cat "$work/out"
equal "as a domain" "$domain" "$(virsh -q list --name --transient | sed '/^$/d')"
virsh dumpxml "$domain" >"$work/domain.xml"
for part in "<domain type='kvm'" "<hugepages>" "<hostdev mode='subsystem' type='pci' managed='no'>" \
    "<driver name='vfio'/>"; do
    contains "with $part" "$part" "$(cat "$work/domain.xml")"
done
vf=$(held_by vfio-pci)
equal "it holds a virtual function" "held domains" "$(named "$vf")"
equal "its memory is in the pages that it asked for" "2M {'2097152': 268435456}" \
    "$(of_cluster domains "'%s %s' % (m['pages']['given'], m['resident']['pages'])")"
code "it uses the card" 0 joins domains 2
code "and reaches this host" 0 reaches domains 1

code "virsh ends it" 0 virsh -q destroy "$domain"
contains "which is seen" died "$(vshmem ps | grep vm0)"
equal "its function is still its own" "$vf held domains" "$(held_by vfio-pci) $(named "$vf")"
code "it is repaired" 0 vshmem repair -c domains --timeout 600
code "and uses the card again" 0 joins domains 2
code "as before" 0 reaches domains 1
code "the cluster ends" 0 vshmem down -c domains
equal "nothing of it is left in libvirt" "" "$(virsh -q list --all --name | sed '/^$/d')"
equal "the virtual functions are gone" 0 "$(cat "$pci/$pf/sriov_numvfs")"
equal "the pages are free" 160 "$(free_pages)"
echo 0 >/proc/sys/vm/nr_hugepages
kill "$daemon"
