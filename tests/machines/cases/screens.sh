# shellcheck shell=bash
# shellcheck disable=SC2154 # lib.sh sets it
# What commands show in terminals of 24x80 and 30x120, against the files in tests/screens: no line is longer
# than the terminal. Numbers are masked there, and so are the columns' widths where they follow numbers.
# SCREENS_WRITE=1 writes the files anew.

cluster=$VSHMEM_CLUSTER
export VSHMEM_CLUSTER=${cluster}v
screens=$MACHINES_ROOT/tests/screens
here=$PWD
as_user_in of-screens

# Numbers with their units, this host's name, and the width of columns.
masked() {
    sed -E -e "s/\\b$(uname -n)\\b/HOST/g; s/\\b$VSHMEM_CLUSTER\\b/CLUSTER/g" \
        -e 's/0x[0-9a-f]{8}/0xKEY/g; s/[0-9]+(\.[0-9]+)?[KMGsmhd]?\b/#/g; s/ +$//' -e 's/  +/  /g'
}

compare() { # compare NAME: of both terminals
    local columns said
    for columns in 80 120; do
        case $1 in
        help | errors | up) said=$(cat "$work/shown/$1-$columns") ;;
        *) said=$(masked <"$work/shown/$1-$columns") ;;
        esac
        [ -z "${SCREENS_WRITE:-}" ] || printf '%s\n' "$said" >"$screens/$1-$columns.txt"
        equal "$1 in $columns columns" "$(cat "$screens/$1-$columns.txt")" "$said"
    done
}

mkdir "$work/shown"
if unshare --user --map-root-user --mount true 2>"$work/err"; then
    equal "no line is longer than the terminal" "" \
        "$(unshare --user --map-root-user --mount "$programs/shown.sh" "$work/shown" 2>&1)"
    for name in help nothing errors up pools ipcs waiters top; do compare "$name"; done
else
    echo "skip    name spaces of a user's own are not allowed here: $(cat "$work/err")"
fi

LIMIT=300 code "two machines come up" 0 vshmem up -n 2 --memory 256M --pool-size 64M
for size in 24x80 30x120; do
    code "vshmem ps fits $size" 0 /usr/bin/python3 "$MACHINES_ROOT/tests/lib/screen.py" "$size" -- vshmem ps
    cp "$work/out" "$work/shown/ps-${size#*x}"
done
compare ps
vshmem down
nothing_left "nothing is left of them"
cd "$here" || exit 1
export VSHMEM_CLUSTER=$cluster
