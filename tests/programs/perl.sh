#!/bin/bash
# perl: the built-in functions and the IPC::SysV family, over two processes.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

need perl perl
needs_sysv perl "$here/perl/builtin.pl"

for script in builtin modules; do
    "${on_vshmem[@]}" perl "$here/perl/$script.pl" >$script.log 2>&1 || {
        cat $script.log
        fail "$script.pl"
    }
done
nothing_left || fail "objects are left: $(objects)"
echo "$(cat ./*.log | grep -cE '^ *ok') assertions"
