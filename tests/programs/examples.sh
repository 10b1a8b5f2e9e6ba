#!/bin/bash
# The examples: workers in four languages and their boss in C, on one queue.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

need "${CC:-cc}" gcc
need perl perl
need php php-cli
examples=$here/../../examples
for program in boss worker; do
    "${CC:-cc}" -Wall -Wextra -Werror -O2 "$examples/$program.c" -o $program
done
# The system's, for which the module is packaged.
python=/usr/bin/python3
$python -c 'import sysv_ipc' 2>/dev/null ||
    skip "sysv_ipc is not installed; 'apt-get install python3-sysv-ipc' brings it"

workers=("./worker" "$python $examples/worker.py" "perl $examples/worker.pl" "php $examples/worker.php")
for worker in "${workers[@]}"; do
    # shellcheck disable=SC2086 # a command and its arguments
    "${on_vshmem[@]}" $worker >alone &
    equal "the boss of one worker" "the sum of the squares up to 100 is 338350" \
        "$("${on_vshmem[@]}" ./boss 100 1)"
    wait
    equal "the tasks of $worker alone" 100 "$(awk '{ print $2 }' alone)"
done
# Each into a file of its own: one may write its line in pieces (PYTHONUNBUFFERED).
for number in "${!workers[@]}"; do
    # shellcheck disable=SC2086 # a command and its arguments
    "${on_vshmem[@]}" ${workers[number]} >"worker.$number" &
done
equal "the boss of four" "the sum of the squares up to 10000 is 333383335000" \
    "$("${on_vshmem[@]}" ./boss 10000 4)"
wait
cat worker.[0-9] >together
equal "the workers" "C PHP Perl Python" "$(LC_ALL=C sort together | cut -d: -f1 | tr '\n' ' ' | sed 's/ $//')"
equal "their tasks" 10000 "$(awk '{ sum += $2 } END { print sum }' together)"
"${on_vshmem[@]}" ipcrm -Q 0x7461736b
nothing_left || fail "objects are left: $(objects)"
echo "workers in C, Python, Perl and PHP: $(sed 's/ tasks//' together | LC_ALL=C sort | tr '\n' ',' |
    sed 's/,$//; s/,/, /g')"
