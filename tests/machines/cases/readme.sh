# shellcheck shell=bash
# shellcheck disable=SC2154 # lib.sh sets it
# README's first program and its section "Machines", line by line as they are printed there, but for the names
# of pools.
cluster=$VSHMEM_CLUSTER
export VSHMEM_CLUSTER=${cluster}r
blocks_of "$MACHINES_ROOT/README.md" "A first program" "$work/first"
blocks_of "$MACHINES_ROOT/README.md" "Machines" "$work/machines-block"
as_user_in of-readme

pool=readme-$cluster-first
cp "$work/first/1.c" hello.c
VSHMEM_POOL=$pool types "$work/first/2.sh" "s/\bdefault\b/$pool/g"
VSHMEM_POOL=$pool vshmem run --local -- ./hello "good night"
types "$work/first/3.sh" "s/\bdefault\b/$pool/g"
equal "it takes the next message" "good night" "$(cat "$work/out")"
vshmem pool rm "$pool"

pool=readme-$cluster
types "$work/machines-block/1.sh" "s/\bwork\b/$pool/g"
nothing_left "nothing is left of what README shows"
cd "$work" || exit 1
export VSHMEM_CLUSTER=$cluster
