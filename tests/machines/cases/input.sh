# shellcheck shell=bash
# shellcheck disable=SC2016,SC2154 # machines expand what is quoted; lib.sh sets it
# Files of the host that a machine has copied into its private layer, as an overlay does when a program opens
# one to write and writes nothing: Fortran's open of an old file does. What a job reads is the host's file as
# it is then, or it is told.

cluster=$VSHMEM_CLUSTER
vshmem down >/dev/null 2>&1
export VSHMEM_CLUSTER=${cluster}i
input=$work/input
mkdir -p "$input"
chmod 777 "$input"
for name in input edited gone; do
    echo 1 >"$input/$name.dat"
done
if ! LIMIT=300 vshmem up -n 1 --no-net --no-doorbell --driver none >"$work/up" 2>&1; then
    failed "a machine comes up" "$(cat "$work/up")"
    exit 1
fi
passed "a machine comes up: $(tail -n 1 "$work/up")"
# read_it NAME...: what a program reads that opens the files to write as well
read_it() {
    (cd "$input" && vshmem exec -u root vm0 -- perl -e \
        'for (@ARGV) { open(F, "+<", $_) or print("none ") && next; print <F> =~ s/\n/ /r }' "$@" 2>&1)
}
equal "a job reads its input" "1 1 1 " "$(read_it input.dat edited.dat gone.dat)"
echo 2 >"$input/input.dat"
rm "$input/gone.dat"
equal "the next one reads what the host has written since" "2 none " "$(read_it input.dat gone.dat)"
# As editors write, and as rsync -t does.
echo 3 >"$input/new"
touch -d '1 hour ago' "$input/new"
mv "$input/new" "$input/input.dat"
equal "and what has replaced the file, though it is older" "3 " "$(read_it input.dat)"
echo back >"$input/gone.dat"
equal "and what is there again" "back " "$(read_it gone.dat)"
vshmem exec -u root vm0 -- sh -c 'echo mine >"$0/edited.dat"' "$input" 2>&1
equal "what was written in the machine stays, without a word" "mine " "$(read_it edited.dat)"
echo theirs >"$input/edited.dat"
said=$(read_it edited.dat)
contains "until the host writes it, too: that is said" "$input/edited.dat" "$said"
contains "of the machine's version" "mine" "$said"
equal "and of no other file" "3 " "$(read_it input.dat 2>&1 | grep -v '^vshmem:')"
vshmem restart vm0 >"$work/restart" 2>&1
equal "a machine that was restarted reads the host's" "theirs " "$(read_it edited.dat)"
vshmem down
export VSHMEM_CLUSTER=$cluster
