# shellcheck shell=bash
# shellcheck disable=SC2154 # lib.sh sets it
# A pool that is taken away from a machine while it is in use: with the driver vshmem.ko, which is built for
# the machines' kernel if need be, and without.

cluster=$VSHMEM_CLUSTER
cc -O1 -Wall -Wextra -o "$work/gone" "$programs/gone.c" || exit 1

use_and_lose() { # use_and_lose HOW OPTION...: in a machine that is started with these options
    local how=$1 address
    shift
    export VSHMEM_CLUSTER=${cluster}g$how
    LIMIT=300 vshmem up -n 1 --no-net "$@" >"$work/up" 2>&1 ||
        { failed "a machine comes up" "$(cat "$work/up")"; exit 1; }
    # shellcheck disable=SC2016 # for the machine's shell
    address=$(vshmem exec vm0 -- sh -c 'cd /sys/bus/pci/devices
        for device in *; do grep -q 0x1110 "$device/device" && echo "$device"; done' | head -n 1)
    vshmem run --vm vm0 -n 1 -u root --no-prefix -- "$work/gone" "$how" "$address" >"$work/lost" 2>&1 || true
    if ! grep -q '^ok      all can be removed' "$work/lost"; then
        failed "$how: the test comes to its end" "$(tail -n 5 "$work/lost")" \
            "$(tail -n 5 "$XDG_RUNTIME_DIR"/vshmem/"$VSHMEM_CLUSTER"/vm0/console.log)"
    fi
    mapfile -t lines <"$work/lost"
    for i in "${!lines[@]}"; do
        case ${lines[i]} in
        "ok      "*) passed "$how: ${lines[i]#ok      }" ;;
        "FAILED  "*) failed "$how: ${lines[i]#FAILED  }" "${lines[i + 1]:-}" ;;
        esac
    done
    vshmem down
}

need_machines
version=$(vshmem exec vm0 -- uname -r)
module=$("$MACHINES_ROOT/kmod/build.sh" "$version") || exit 1
use_and_lose driver --driver "$module"
use_and_lose memory --driver none
