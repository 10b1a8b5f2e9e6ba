# shellcheck shell=sh
# Runs programs in dom0, or in a domain that has two processors, as the lab asks by the second serial line
# (lab/vshmem_lab/runners/xen_host.py). It asks by a line "dom0 SECONDS COMMAND" or "domain SECONDS COMMAND",
# the command in Base64, and gets a line "STATUS BYTES" and so many bytes, which the command has printed. A
# domain that does not answer in time is made anew for the next command.
line=/dev/ttyS1
stty -F $line raw -echo
exec 3<>$line
# Xen's own clock differs from processor to processor where those are emulated, so that Linux's stands still
# for moments. Emulated processors have one TSC.
CLOCK="clocksource=tsc tsc=reliable"
PIECE=1700 # of what a key of XenStore holds

# in_domain SECONDS COMMAND: what it prints is left in /tmp/said; its exit code
in_domain() {
    if [ ! -e /tmp/vm.cfg ]; then
        KERNEL="$CLOCK" VCPUS=2 create vm pv 1024
        need vm
        xl vcpu-pin vm 0 0
        xl vcpu-pin vm 1 1
    fi
    # Nothing looks for its answer often, so that all of the processors are the domain's.
    LIMIT=$1 PACE=15 ask vm "sh -c \"\$(echo $2 | base64 -d)\" >/tmp/said 2>&1" >/tmp/said
    code=$?
    if [ $code -ge 98 ] && [ -s /tmp/said ]; then
        destroy vm
        return $code
    fi
    fetch
    return $code
}

# fetch: what the domain's last command has said, in pieces
fetch() {
    size=$(ask vm 'gzip -c /tmp/said | base64 -w 0 >/tmp/packed; wc -c </tmp/packed')
    : >/tmp/packed
    at=0
    while [ $((at * PIECE)) -lt "$size" ]; do
        ask vm "dd if=/tmp/packed bs=$PIECE skip=$at count=1 2>/dev/null" | tr -d '\n' >>/tmp/packed
        at=$((at + 1))
    done
    base64 -d /tmp/packed | gzip -dc >/tmp/said
}

echo ready >&3
while read -r where seconds text <&3; do
    code=0
    case $where in
    dom0) timeout "$seconds" sh -c "$(echo "$text" | base64 -d)" </dev/null >/tmp/said 2>&1 || code=$? ;;
    domain) in_domain "$seconds" "$text" || code=$? ;;
    esac
    printf '%s %s\n' $code "$(wc -c </tmp/said)" >&3
    cat /tmp/said >&3
done
