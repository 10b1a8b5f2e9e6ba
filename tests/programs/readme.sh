#!/bin/bash
# The first program of README.md, as printed there.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

need "${CC:-cc}" gcc
# shellcheck source=tests/lib/blocks.sh
. "$here/../lib/blocks.sh"
blocks_of "$here/../../README.md" "A first program" blocks
cp blocks/1.c hello.c
"${CC:-cc}" -Wall -Wextra -Werror -O2 hello.c -o hello

needs_sysv ./hello
"${on_vshmem[@]}" ./hello 'good morning'
equal "objects" "segments 0, sets 0, queues 1" "$(objects)"
equal "the message" "good morning" "$("${on_vshmem[@]}" ./hello)"
# The receiver may also come first.
"${on_vshmem[@]}" ./hello >received &
receiver=$!
"${on_vshmem[@]}" ./hello 'good evening'
wait $receiver
equal "the second message" "good evening" "$(cat received)"
"${on_vshmem[@]}" ipcrm -Q 0x1234
nothing_left || fail "objects are left: $(objects)"
echo "the first program sends and receives"
