# shellcheck shell=bash
# shellcheck disable=SC2016,SC2154 # other shells expand what is quoted; lib.sh sets it
# An ordinary user can do it all. Root becomes one for this.
if [ "$(id -u)" -ne 0 ]; then
    passed "the other cases run as an ordinary user"
    return
fi

home=$work/home
mkdir -p "$home/run" "$home/cache"
# The kernel was found or downloaded by the cases before.
copy_cache "$home/cache"
cp "$VSHMEM_BIN" "$home/vshmem"
cp "$VSHMEM_LIB" "$home/libvshmem.so"
chmod 755 "$work"
chown -R 65534:65534 "$home"
chmod 700 "$home/run"
user() {
    (cd "$home" && timeout --kill-after=10 $((300 * slow)) \
        setpriv --reuid 65534 --regid 65534 --clear-groups env VSHMEM_LIB="${LIB:-$home/libvshmem.so}" \
        HOME="$home" \
        XDG_CACHE_HOME="$home/cache" XDG_RUNTIME_DIR="$home/run" "$home/vshmem" "$@")
}

# shellcheck disable=SC2086 # a list of words
user up --quiet ${VSHMEM_TEST_UP:-} >"$work/out" 2>&1
equal "an ordinary user starts machines" 0 $?
equal "and uses their pool" "vm0: 65534 7,vm1: 65534 7," \
    "$(user run -- perl -e 'my $s = semget(0x55, 1, 01600) // die $!;
        semctl($s, 0, 16, 7); print "$> ", semctl($s, 0, 12, 0), "\n"' 2>&1 | sort | tr '\n' ',')"
cp "$VSHMEM_LIB" "$home/elsewhere.so"
(LIB=$home/elsewhere.so && user run -- true) >"$work/out" 2>&1
equal "a library that a machine can't see is an error" 125 $?
contains "which says what helps" "--share" "$(cat "$work/out")"
equal "the pool is its owner's alone" "600" "$(stat -c %a "/dev/shm/vshmem.65534/cluster.$VSHMEM_CLUSTER")"
user down
equal "and stops them" "" "$(find "$home/run" -mindepth 1;
    find /dev/shm/vshmem.65534 -name "cluster.$VSHMEM_CLUSTER")"
rm -rf "$home"
