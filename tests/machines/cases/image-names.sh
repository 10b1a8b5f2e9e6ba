# shellcheck shell=bash
# shellcheck disable=SC2154 # lib.sh sets it
# Images by name and by address: from a mirror of the test's own, into a cache of its own. What can't be
# booted ends as soon as it would be, and tells so that the image was here.

cluster=$VSHMEM_CLUSTER
export VSHMEM_CLUSTER=${cluster}n
mirror=$work/mirror cache=$work/image-cache table=$work/images.toml
images=$cache/vshmem/images
mkdir -p "$mirror" "$cache"
copy_cache "$cache"
XDG_CACHE_HOME=$cache
export XDG_CACHE_HOME VSHMEM_IMAGES=$table no_proxy=127.0.0.1
/usr/bin/python3 "$programs/mirror.py" "$mirror" "$work/address" >"$work/asked" 2>&1 &
serving=$!
trap 'kill "$serving" 2>/dev/null || true' EXIT
eventually "there is a mirror" test -e "$work/address"
address=$(cat "$work/address")

# A disk that has a boot sector, and no system behind it.
{ head -c 510 /dev/zero && printf '\125\252' && head -c 2000000 /dev/urandom; } >"$mirror/one.img"
(cd "$mirror" && sha512sum one.img >SHA512SUMS)
cat >"$table" <<TOML
["one/1"]
address = "$address/one.img"
checksums = "$address/SHA512SUMS"
["wrong/1"]
address = "$address/wrong.img"
checksums = "$address/WRONG"
TOML
boot() { # boot IMAGE: whether it is one is known after some seconds
    vshmem up -n 1 --no-net --timeout 3 --image "$@"
}
no_system="needs systemd and cloud-init"

code "a name that nobody knows is a mistake" 2 vshmem up --image debian/99
contains "which says what there is" \
    "no image is called debian/99
  Those that have a name are debian/12, debian/13, one/1, ubuntu/24.04, wrong/1" "$(cat "$work/out")"
contains "help has it" "--image <IMAGE>" "$(vshmem up --help)"
equal "so does completion" "debian/12 debian/13" "$(cd / && _VSHMEM_COMPLETE=fish "$VSHMEM_BIN" -- vshmem up \
    --image debian/ | sort | xargs)"
code "a plan says what would be downloaded" 0 vshmem up -n 1 --image one/1 --dry-run
contains "and what would boot it" "download one/1 from $address/one.img
make     the pool default: 1G
start    vm0: 1 core, 512M of memory, pools default, it boots one/1" "$(cat "$work/out")"
equal "and does not" "" "$(find "$cache" -name '*.img' -o -name '*.partial')$(cat "$work/asked")"
code "nor is it for machines that are refused" 125 vshmem up -n 1 --memory 9999G --image one/1
equal "of which the mirror hears nothing" "" "$(cat "$work/asked")"
mkdir -p "$work/only"
ln -sf "$(command -v qemu-system-x86_64)" "$(command -v qemu-img)" "$work/only" 2>/dev/null
PATH=$work/only code "without curl nothing is downloaded" 125 "$VSHMEM_BIN" up -n 1 --image one/1
contains "which is said with its package" "apt-get install curl" "$(cat "$work/out")"

code "a machine boots what is downloaded by name" 125 boot one/1
contains "as far as that goes" "$no_system" "$(cat "$work/out")"
contains "it says from where, and that the checksum is right" \
    "vshmem up: downloading one/1 from $address/one.img
vshmem up: one/1 is here, and its sha512 is right" "$(cat "$work/out")"
equal "there is no line of progress where there is no terminal" 0 "$(grep -c " a second" "$work/out")"
equal "it is in the cache" "$(sha512sum <"$mirror/one.img")" "$(sha512sum <"$(echo "$images"/one_1_*.img)")"
equal "and nothing else" 1 "$(find "$images" -type f | wc -l)"
: >"$work/asked"
code "the second time" 125 boot one/1
contains "it boots, too" "$no_system" "$(cat "$work/out")"
equal "and nobody is asked" "" "$(cat "$work/asked")"
cat >"$work/named.toml" <<TOML
[[machines]]
name = "cloud"
image = "one/1"
TOML
contains "a file names it as well" "it boots $(echo "$images"/one_1_*.img)" \
    "$(vshmem up "$work/named.toml" --dry-run 2>&1)"

cp "$mirror/one.img" "$mirror/wrong.img"
(cd "$mirror" && sha512sum wrong.img >WRONG)
echo more >>"$mirror/wrong.img"
code "what has another checksum is not booted" 125 boot wrong/1
contains "which is said" "wrong.img sent has the wrong checksum: sha512" "$(cat "$work/out")"
equal "and not kept" 1 "$(find "$images" -type f | wc -l)"

# ctrl-C in the midst.
sum=$(sha256sum <"$mirror/one.img" | cut -d ' ' -f 1)
: >"$mirror/one.img.slow"
: >"$work/asked"
shown=$(on_terminal "wait:of 1.9M (1" "send:\\x03" -- \
    "$VSHMEM_BIN" up -n 1 --no-net --timeout 3 --image "$address/one.img#sha256=$sum")
contains "a terminal shows how far it is" " of 1.9M (" "$shown"
contains "ctrl-C ends it" "interrupted" "$shown"
contains "as a signal does" "code 130" "$shown"
equal "no curl is left" "" "$(pgrep -f "$address/one.img" || true)"
partial=$(echo "$images"/*.partial)
holds "what has come is kept" test -s "$partial"
nothing_left "nothing else is"
had=$(stat -c %s "$partial")
rm "$mirror/one.img.slow"
code "the next one goes on" 125 boot "$address/one.img#sha256=$sum"
contains "and boots it" "$no_system" "$(cat "$work/out")"
equal "from where it was" "/one.img $had" "$(tail -n 1 "$work/asked")"
equal "and no part is left" "" "$(find "$images" -name '*.partial')"

code "by http, an image needs a checksum" 2 boot "$address/one.img"
code "a file has one, if it is said" 125 boot "file:$mirror/one.img#sha256=$sum"
contains "and boots from where it lies" "$no_system" "$(cat "$work/out")"
code "not if it is another" 125 boot "file:$mirror/wrong.img#sha256=$sum"
contains "which is said" "$mirror/wrong.img has the wrong checksum: sha256" "$(cat "$work/out")"
code "a path needs none" 125 boot "$mirror/one.img"
contains "and boots, too" "$no_system" "$(cat "$work/out")"

kill "$serving"
wait "$serving" 2>/dev/null
code "without a network, what is in the cache boots" 125 boot one/1
contains "as before" "$no_system" "$(cat "$work/out")"
rm "$images"/one_1_*.img
code "what is not can't be had" 125 boot one/1
contains "which says why, and what to do" \
    "one/1 could not be downloaded from $address/SHA512SUMS: Failed to connect" "$(cat "$work/out")"
contains "a file" "download the image elsewhere, and name the file" "$(cat "$work/out")"
contains "or a mirror" "/etc/vshmem/images.toml can name a mirror" "$(cat "$work/out")"
nothing_left "nothing is left"
unset VSHMEM_IMAGES XDG_CACHE_HOME
export VSHMEM_CLUSTER=$cluster
