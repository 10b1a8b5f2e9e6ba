#!/bin/sh
# The C compiler for kernel_tuner, which compiles each variant again in each run. What has been compiled from
# the same text with the same options is taken from the folder VSHMEM_LAB_COMPILED. It may be read-only.
#
#   compiler.sh -c SOURCE OPTION... -o OBJECT
#   compiler.sh OBJECT OPTION... -o LIBRARY
set -eu

input='' output='' options='' previous=''
for word in "$@"; do
    case $previous,$word in
    -o,*) output=$word ;;
    *,*.c | *,*.cc | *,*.o) input=$word ;;
    *,-o) ;;
    *) options="$options $word" ;;
    esac
    previous=$word
done
key=$({
    echo "$options"
    cat "$input"
} | sha256sum | cut -c 1-32)
kept=$VSHMEM_LAB_COMPILED/$key
if [ ! -e "$kept" ]; then
    cc "$@"
    if mkdir -p "$VSHMEM_LAB_COMPILED" 2>/dev/null && cp "$output" "$kept.$$" 2>/dev/null; then
        mv "$kept.$$" "$kept"
    fi
    exit
fi
cp "$kept" "$output"
