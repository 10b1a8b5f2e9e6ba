# shellcheck shell=bash
# shellcheck disable=SC2154 # lib.sh sets it
# Memory of machines and pools in large pages, and on nodes. Pages are reserved for it as far as this user
# may, and given back.

cluster=$VSHMEM_CLUSTER
# Those that other cases share take processor time.
vshmem down >/dev/null 2>&1
export VSHMEM_CLUSTER=${cluster}p
reserved=/proc/sys/vm/nr_hugepages
before=$(cat "$reserved" 2>/dev/null) || before=
huge=$work/huge
# shellcheck disable=SC2317 # run.sh calls it
clean_up() {
    "$VSHMEM_BIN" down >/dev/null 2>&1 || true
    ! mountpoint -q "$huge" || umount "$huge"
    [ -z "$before" ] || echo "$before" >"$reserved" 2>/dev/null || true
}
in_first() { # in_first EXPRESSION: of our cluster, which is called c
    vshmem ps --json | field "(lambda c: $1)(told['clusters'][0])"
}

code "pages that must be had and can't are an error" 125 vshmem up -n 1 --memory 900G --pages 2M \
    --strict pages
contains "that says which" "vm0 can't have its 900G in pages of 2M" "$(cat "$work/out")"
if grep -q '^Hugepagesize: *2048 kB' /proc/meminfo; then
    contains "and what to do" "As root: sysctl vm.nr_hugepages=" "$(cat "$work/out")"
fi
nothing_left "nothing is left of that"

# Two machines of the example, and a bit of a pool later.
[ -z "$before" ] || echo $((before + 300)) >"$reserved" 2>/dev/null || true
was_free=$(free_pages)
if ! LIMIT=300 vshmem up "$MACHINES_ROOT/examples/cluster/large-pages.toml" >"$work/up" 2>&1; then
    failed "the machines of the example come up" "$(cat "$work/up")"
    exit 1
fi
if [ "${was_free:-0}" -ge 300 ]; then
    equal "they have the pages that the example asks for" "[['2M', 268435456]] [['2M', 268435456]]" "$(
        vshmem ps --json | field '*[[[m["pages"]["given"], m["resident"]["pages"].get("2097152")]]
            for m in told["clusters"][0]["machines"]]')"
    smaps() { # smaps VM: KiB of reserved pages that its process has, as the kernel says
        awk '/^(Shared|Private)_Hugetlb:/ { n += $2 } END { print n }' "/proc/$(pid_of "$1")/smaps"
    }
    equal "which the kernel says, too" "262144 262144" "$(smaps solver0) $(smaps solver1)"
    equal "they were taken before the machines booted, by two threads" "[268435456, 2] [268435456, 2]" "$(
        vshmem ps --json | field '*[[m["pages"]["populated"][key] for key in ("bytes", "threads")]
            for m in told["clusters"][0]["machines"]]')"
    contains "how fast is told" "GiB/s" "$(grep 'took the memory of solver0' "$work/up")"
    equal "and vshmem ps shows them" "2M 2M" "$(vshmem ps -l |
        awk '$2 ~ /^solver/ { print $15 }' | paste -s -d ' ')"
else
    equal "machines that can't have the pages of the example get the next best" 2 "$(
        grep -c "warning: solver[01] can't have its 256M in pages of 2M" "$work/up")"
fi
equal "the pool is on its node" "[0]" "$(in_first "[int(n) for n in c['pools'][0]['resident']['nodes']]")"
equal "all of it" 67108864 "$(in_first "sum(c['pools'][0]['resident']['nodes'].values())")"
equal "ahead of time" 67108864 "$(in_first "c['pools'][0]['pages']['populated']['bytes']")"
if in_first "c['pools'][0]['resident']['transparent_huge']" | grep -qx 0; then
    contains "what it does not have of its pages is named" \
        "the memory of the pool default is not as it was asked for" "$(cat "$work/up")"
fi
contains "vshmem ps shows the pool" " GiB/s" "$(vshmem ps -l | grep -A 1 '^CLUSTER  *POOL ' | tail -n 1)"
code "machines use it" 0 vshmem exec solver1 -- "$VSHMEM_BIN" ipcs
vshmem down
nothing_left "nothing is left of machines and pools in large pages"
equal "and their pages are free again" "$was_free" "$(free_pages)"

# A pool in reserved pages is a file of a hugetlbfs.
mkdir -p "$huge"
if [ "${was_free:-0}" -ge 300 ] && mount -t hugetlbfs -o pagesize=2M hugetlbfs "$huge" 2>"$work/out"; then
    code "where there are no pages of 1G, the next best are taken" 0 vshmem up -n 1 --memory 1G --pages 1G \
        --pool-pages 2M --pool-size 64M --pool-node interleave
    contains "which is said" "warning: vm0 can't have its 1G in pages of 1G" "$(cat "$work/out")"
    equal "a pool can be in reserved pages" "2M {'2097152': 67108864}" "$(
        in_first "'%s %s' % (c['pools'][0]['pages']['given'], c['pools'][0]['resident']['pages'])")"
    path=$(in_first "c['pools'][0]['path']")
    holds "as a file of this user" test -f "$path"
    code "which programs of the host find" 0 vshmem ipcs --pool "$path"
    equal "and of the machine, by its name there" default "$(vshmem exec vm0 -- "$VSHMEM_BIN" ipcs --json |
        field '" ".join(pool["pool"] for pool in told["pools"])')"
    vshmem down
    nothing_left "nothing is left of that"
    equal "nor of its pages" "$was_free" "$(free_pages)"
    holds "nor of its file" test ! -e "$path"
fi
clean_up
export VSHMEM_CLUSTER=$cluster
