# shellcheck shell=bash
# shellcheck disable=SC2154 # lib.sh sets it
# Two users of one host, each with a pool of the same name and jobs of their own: at the same time, and
# neither gets at the other's pool.
. "$MPI_HERE/lib.sh"

users=(2001 2002)
as_user() { # as_user USER COMMAND...
    setpriv --reuid "$1" --regid "$1" --clear-groups env HOME="$work" XDG_RUNTIME_DIR="$own/$1" "${@:2}"
}
if [ "$(id -u)" != 0 ]; then
    echo "skip    only root can act as two users"
    exit 0
elif ! setpriv --reuid 2001 unshare --user --map-root-user true 2>"$work/err"; then
    echo "skip    users' own name spaces are not allowed here: $(cat "$work/err")"
    exit 0
fi

own=$work/users
mkdir "$own"
for user in "${users[@]}"; do
    mkdir -m 700 "$own/$user"
    chown "$user:$user" "$own/$user"
done
echo "127.0.0.1 localhost one two" >"$own/names"
# As a container: it has name spaces of its own, and its host name leads to it.
cat >"$own/in-host" <<H
#!/bin/sh
exec unshare --user --map-root-user --uts --ipc --pid --mount --fork --kill-child --mount-proc \\
    sh -c 'hostname "\$0" && mount --bind "$own/names" /etc/hosts && exec "\$@"' "\$@"
H
chmod 755 "$own/in-host"

# users_job USER OWNER WORDS...: that user's job of two ranks in two hosts, with the pool of OWNER
users_job() {
    as_user "$1" timeout 60 "$VSHMEM_BIN" mpirun -host one:1,two:1 --exec "$own/in-host {}" \
        --pool "/dev/shm/vshmem.$2/job" \
        -n 2 "$MPI_PROGRAMS/mpich/points" "${@:3}" </dev/null
}

for user in "${users[@]}"; do
    code "$user has a pool" 0 as_user "$user" "$VSHMEM_BIN" pool create job --size 64M
    for _ in 1 2 3; do users_job "$user" "$user" 65536; done >"$own/$user.said" 2>&1 &
done
wait
for user in "${users[@]}"; do
    equal "$user: jobs run beside the other's" "$(yes 'points: 2 ranks on 2 hosts' | head -n 3)" \
        "$(cat "$own/$user.said")"
done
users_job 2002 2001 64 >"$work/out" 2>&1
holds "nobody else's ranks begin in the pool" [ $? -ne 0 ]
contains "and they are told why" "may not be read and written by this user" "$(cat "$work/out")"
for user in "${users[@]}"; do
    as_user "$user" "$VSHMEM_BIN" check job >"$work/out" # mends what the dead have left
    code "$user: the pool is whole" 0 as_user "$user" "$VSHMEM_BIN" check job
    code "$user removes the pool" 0 as_user "$user" "$VSHMEM_BIN" pool rm job
done
