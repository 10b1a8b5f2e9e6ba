# shellcheck shell=bash
# shellcheck disable=SC2154 # inside.sh sets what it uses
# Memory and pools in pages of 1 GiB, of which the emulated machine has three.

gigantic=/sys/kernel/mm/hugepages/hugepages-1048576kB
equal "there are three pages of 1 GiB" 3 "$(cat $gigantic/free_hugepages)"
mkdir -p "$work/huge"
mount -t hugetlbfs -o mode=1777,pagesize=1G hugetlbfs "$work/huge"

in_pages() { # in_pages NAME SIZE: a cluster whose memory and pool, of this size, must be in such pages
    cat >"$work/$1.toml" <<TOML
name = "$1"
network = false
doorbell = false
spare-pools = 0
[pages]
machines = "1G"
pools = "1G"
insist = "strict"
prealloc-threads = 1
[[machines]]
memory = "1G"
[pools.default]
size = "$2"
TOML
}
in_pages gigantic 1G
code "a pool of one page can't be in it" 125 up gigantic
contains "and it is said how large one must be" "Give it 2G or more" "$(cat "$work/out")"
in_pages gigantic 2G
code "a machine comes up in a page of 1 GiB, and its pool in two" 0 up gigantic
cat "$work/out"
equal "there is none left" 0 "$(cat $gigantic/free_hugepages)"
equal "which the kernel says of the machine's memory" "1G {'1073741824': 1073741824}" \
    "$(of_cluster gigantic "'%s %s' % (m['pages']['given'], m['resident']['pages'])")"
equal "and of the pool's" "1G {'1073741824': 2147483648}" \
    "$(of_cluster gigantic "'%s %s' % (c['pools'][0]['pages']['given'], c['pools'][0]['resident']['pages'])")"
code "the machine uses the pool" 0 in_machine gigantic "$VSHMEM_BIN ipcs"

# There are no more.
in_pages other 2G
code "another one that must have such does not start" 125 up other
contains "which is said" "in pages of 1G" "$(cat "$work/out")"
contains "with what to do" "hugepagesz=1G" "$(cat "$work/out")"
code "the cluster ends" 0 vshmem down -c gigantic
equal "its pages are free again" 3 "$(cat $gigantic/free_hugepages)"
umount "$work/huge"
