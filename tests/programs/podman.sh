#!/bin/bash
# Containers in earnest: podman runs examples/containers/compose.yaml as it is, and the pods of
# examples/kubernetes/pods.yaml.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

COMPOSE=podman-compose==1.6.0 # Debian 12's does not know a network_mode that is none
examples=$here/../../examples
[ "$PROGRAMS_MODE" = vshmem ] || skip "containers share nothing by the kernel's System V IPC"
need "${CC:-cc}" gcc
# shellcheck source=podman/setup
. "$here/podman/setup"

# In the place of Debian's image, which would have to be fetched: what programs need of this system.
mkdir -p image/usr/bin tasks
for program in boss worker; do
    "${CC:-cc}" -O2 "$examples/$program.c" -o tasks/$program
done
cp tasks/worker image/usr/bin/worker
{ echo "$(command -v sleep)" && ldd tasks/boss "$PROGRAMS_LIB" "$(command -v sleep)" |
    grep -o '/[^ :]*\.so[^ :]*' | sort -u; } |
    grep -vxF "$PROGRAMS_LIB" | xargs cp -L --parents -t image
tar -C image -c . | podman import --change "CMD [\"$(command -v sleep)\", \"1000\"]" - \
    docker.io/library/debian:13-slim >import.log 2>&1 ||
    skip "podman can make no image: $(tail -n 1 import.log)"
podman run --rm --network none debian:13-slim "$(command -v sleep)" 0 >run.log 2>&1 ||
    skip "podman can run no container: $(tail -n 1 run.log)"

python3 -m venv venv >venv.log 2>&1 && venv/bin/pip install --quiet --disable-pip-version-check "$COMPOSE" \
    >venv.log 2>&1 ||
    skip "podman-compose can't be fetched from PyPI: $(tail -n 1 venv.log)"

# Root of a container is who runs podman, and called 0 in the pool.
export POOL="$pool" LIB="$PROGRAMS_LIB" OWNER=0:0
VSHMEM_UID_MAP="$(id -u) 0 1" VSHMEM_GID_MAP="$(id -g) 0 1"
export VSHMEM_UID_MAP VSHMEM_GID_MAP
equal "the pool at first" "segments 0, sets 0, queues 0" "$(objects)"
cp "$examples/containers/compose.yaml" tasks
(cd tasks && timeout 100 "$dir/venv/bin/podman-compose" --no-ansi up --abort-on-container-exit) >compose.log \
    2>&1 || fail "compose: $(cat compose.log)"
grep -q "the sum of the squares up to 1000 is 333833500" compose.log ||
    fail "the boss of compose.yaml: $(cat compose.log)"
equal "tasks of compose.yaml's workers" 1000 \
    "$(awk '/ C: / { sum += $(NF - 1) } END { print sum }' compose.log)"
"${on_vshmem[@]}" ipcrm -Q 0x7461736b

# What the node is asked to have lies elsewhere here.
sed -e "s|path: /dev/shm/tasks|path: $pool|; s|path: /srv/tasks|path: $dir/tasks|" \
    -e "s|{path: /usr/lib/.*libvshmem.so.1,|{path: $PROGRAMS_LIB,|" \
    -e "s|runAsUser: 1000, runAsGroup: 1000|runAsUser: 0, runAsGroup: 0|" "$examples/kubernetes/pods.yaml" \
    >pods.yaml
podman kube play --network none pods.yaml >play.log 2>&1 ||
    fail "podman does not take the pods: $(cat play.log)"
for container in boss-main worker-main; do
    equal "the exit status of $container" 0 "$(timeout 60 podman wait $container 2>&1)"
done
equal "the boss of the pods" "the sum of the squares up to 1000 is 333833500" "$(podman logs boss-main 2>&1)"
equal "their worker" "C: 1000 tasks" "$(podman logs worker-main 2>&1)"
"${on_vshmem[@]}" ipcrm -Q 0x7461736b

# README's containers, as it starts them.
vshmem=${VSHMEM_BIN:-$here/../../target/release/vshmem}
shared=readme-$$
sed -n '/^## Containers$/,/^## /p' "$here/../../README.md" | sed -n '/^```sh$/,/^```$/p' |
    grep -v '^```' >readme.txt
grep -q 'docker run .*VSHMEM_POOL' <(tr -d '\n' <readme.txt) || fail "README has no containers"
sed -e "s|^vshmem |$vshmem |; s|\bshared\b|$shared|; s|^lib=.*|lib=$PROGRAMS_LIB|" \
    -e "s|docker run|podman run --network none|; s|IMAGE COMMAND|debian:13-slim worker|" \
    readme.txt >readme.sh
pool_of_readme=/dev/shm/vshmem.$(id -u)/$shared
started=0
bash -eu readme.sh >readme.log 2>&1 || started=$?
sum=$(env "LD_PRELOAD=$PROGRAMS_LIB" "VSHMEM_POOL=$pool_of_readme" timeout 60 tasks/boss 1000 2 2>boss.log) ||
    :
ended=$(timeout 60 podman wait one two 2>&1 | tr '\n' ' ') || true
"$vshmem" pool rm --force "$shared"
[ "$started" -eq 0 ] || fail "README's containers: $(cat readme.log)"
equal "the boss of README's containers" "the sum of the squares up to 1000 is 333833500" "$sum"
equal "the exit status of README's containers" "0 0 " "$ended"

nothing_left || fail "objects are left: $(objects)"
echo "compose.yaml: $(grep -o 'C: .*' compose.log | sort | tr '\n' ',' |
    sed 's/,$//; s/,/, /g'); two pods with a pool by hostPath"
