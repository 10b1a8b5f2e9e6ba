# shellcheck shell=sh
# The papers' micro-benchmarks between domains, and libxenvchan: prints "measured PLACES METHOD SIZE
# NANOSECONDS", there and back, a line for each run. The lab makes a table of them. RUNS and DURATION come
# from /cases/settings. PLACES are those of the papers' table: host-host is two processes of dom0. With -up
# dom0 has one processor (a host without SMP).
# shellcheck source=/dev/null
. /cases/settings
for module in llc stp bridge xen-netback; do
    insmod "/modules/$module.ko" || failed "dom0 loads $module"
done
ip link set lo up
# shellcheck disable=SC2034 # for lib.sh
NETWORK=1
need vm0 vm1
serve papers 32M vm0,vm1
joined vm0 vm1
for name in vm0 vm1; do
    eventually "$name has the pool" ask "$name" 'test -c /dev/vshmem-xen/papers'
done

# A bridge, as Xen's own scripts make one.
brctl addbr br0
ip addr add 10.7.0.1/24 dev br0
ip link set br0 up
last=1
for name in vm0 vm1; do
    last=$((last + 1))
    ask "$name" "insmod /modules/xen-netfront.ko; \
        ip addr add 10.7.0.$last/24 dev eth0 && ip link set eth0 up" ||
        failed "$name has a network"
    brctl addif br0 "vif$(id_of "$name").0"
    eventually "dom0 reaches $name" ping -c 1 -W 2 "10.7.0.$last"
done
eventually "vm1 reaches vm0" ask vm1 'ping -c 1 -W 2 10.7.0.2'

# Who plays has a processor of its own.
xl vcpu-pin Domain-0 0 0
xl vcpu-pin Domain-0 1 1

plan="segment 8 segment 1000"
# The papers' own: busy waiting in a plain segment, an integer and 1,000 bytes.
busy="raw 8 bakery 4 bakery 1000 swap 4 swap 1000"
tcp="tcp 8 tcp 1000"
# A reading of the clock, which costs a PV domain 20 to 30 us, for so many rounds.
pong="VSHMEM_POOL=papers LD_PRELOAD=/lib/libvshmem.so forbid pingpong -r 1024 -t $DURATION"

sync="VSHMEM_POOL=papers LD_PRELOAD=/lib/libvshmem.so forbid busypong"

# in_dom0 PROCESSOR COMMAND
in_dom0() {
    sh -c "taskset $1 sh -c '$2'"
}

# told PLACES FILE...: passes on what was measured, by whichever of the two has
told() {
    places=$1
    shift
    found=$(grep -hE '^(raw|bakery|swap|segment|tcp|vchan|vchan-polled) [0-9]+ [0-9.]+' "$@")
    [ -n "$found" ] || failed "$places" "$(cat "$@")"
    printf '%s\n' "$found" | sed -E "s/^([a-z-]+ [0-9]+ [0-9.]+).*/measured $places \1/"
}

# guest_does NAME COMMAND: its output is in /tmp/NAME.said
guest_does() {
    LIMIT=600 ask "$1" "$2" >"/tmp/$1.said" 2>&1
}

# vchans PLACES SERVER DOMAIN: libxenvchan between vm1, which measures, and a server, whose domain's number is
# given. One channel for each size and manner, since a channel has a ring of the size that it was made for.
vchans() {
    for manner in '' -p; do
        for size in 8 1000; do
            serving="vchanpong $manner -l $(id_of vm1) $size"
            if [ "$2" = dom0 ]; then
                in_dom0 1 "$serving" >/tmp/served 2>&1 &
            else
                guest_does "$2" "$serving" &
            fi
            guest_does vm1 "vchanpong $manner -c $3 -t $DURATION $size"
            wait $!
            told "$1" /tmp/vm1.said
        done
    done
}

# host_and_guest PLACES, guests PLACES: the papers' own between these, and TCP
host_and_guest() {
    guest_does vm0 "$sync $key $busy" &
    in_dom0 1 "$sync $key $busy" >/tmp/other 2>&1
    wait $!
    told "$1" /tmp/vm0.said /tmp/other
    guest_does vm0 "netpong -l" &
    in_dom0 1 "netpong -c 10.7.0.2 -t $DURATION $tcp" >/tmp/other 2>&1
    wait $!
    told "$1" /tmp/other
}

guests() {
    guest_does vm0 "$sync $key $busy" &
    guest_does vm1 "$sync $key $busy"
    wait $!
    told "$1" /tmp/vm0.said /tmp/vm1.said
    guest_does vm0 "netpong -l" &
    guest_does vm1 "netpong -c 10.7.0.2 -t $DURATION $tcp"
    wait $!
    told "$1" /tmp/vm1.said
}

online() {
    [ "$(grep -c ^processor /proc/cpuinfo)" = "$1" ]
}

# dom0_has COUNT: so many processors
dom0_has() {
    xl vcpu-set Domain-0 "$1"
    eventually "dom0 has $1 processors" online "$1"
}

run=0
while [ $run -lt "$RUNS" ]; do
    run=$((run + 1))
    key="-k $((0x50000000 + run * 16))"
    in_dom0 1 "$sync $key $busy" >/tmp/one 2>&1 &
    in_dom0 2 "$sync $key $busy" >/tmp/other 2>&1
    wait $!
    told host-host /tmp/one /tmp/other
    in_dom0 1 "netpong -l" >/tmp/one 2>&1 &
    in_dom0 2 "netpong -c 127.0.0.1 -t $DURATION $tcp" >/tmp/other 2>&1
    wait $!
    told host-host /tmp/other

    xl vcpu-pin vm0 0 1
    host_and_guest host-guest
    guest_does vm0 "$pong $key $plan" &
    in_dom0 1 "$pong $key $plan" >/tmp/other 2>&1
    wait $!
    told host-guest /tmp/vm0.said /tmp/other

    xl vcpu-pin vm1 0 1
    vchans host-guest dom0 0

    xl vcpu-pin vm0 0 0
    guests guest-guest
    guest_does vm0 "$pong $key $plan" &
    guest_does vm1 "$pong $key $plan"
    wait $!
    told guest-guest /tmp/vm0.said /tmp/vm1.said
    vchans guest-guest vm0 "$(id_of vm0)"

    dom0_has 1
    xl vcpu-pin vm0 0 1
    host_and_guest host-guest-up
    xl vcpu-pin vm0 0 0
    guests guest-guest-up
    dom0_has 2
done
passed "all was measured"
