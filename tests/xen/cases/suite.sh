# shellcheck shell=sh
# shellcheck disable=SC2016 # other shells expand what is quoted
# The System V suite (tests/conformance), in a guest and in dom0, and perl's own modules for System V; each on
# a fresh pool, while a filter forbids the kernel's calls.
need vm0
joined vm0
export LIMIT=900

# fresh: a pool with the limits that Linux has, which the suite looks at
fresh() {
    serve suite 64M vm0 --limit msgmax=8192 --limit msgmnb=16384
    have suite vm0
}

# judge WHAT CODE OUTPUT: no test may fail, and some must have run
judge() {
    count=$(printf '%s\n' "$3" | sed -n 's/^\([0-9]*\) ok$/\1/p')
    if [ "$2" = 0 ] && [ "${count:-0}" -gt 0 ] && ! printf '%s\n' "$3" | grep -q '^FAIL'; then
        passed "$1: $count tests"
    else
        failed "$1" "exit code $2" "$3"
    fi
}

# What went well is only counted.
summary='grep -v "^ok " /tmp/suite; echo "$(grep -c "^ok " /tmp/suite) ok"'
for name in $(cat /tests/suite); do
    # It takes minutes: what is done is done, if the case is begun again.
    [ ! -e "/done/$name" ] || continue
    echo "== suite: $name"
    fresh
    command="($(on_pool suite "/tests/$name")) >/tmp/suite 2>&1; code=\$?; $summary; exit \$code"
    said=$(ask vm0 "$command")
    judge "$name in a guest" $? "$said"
    said=$(sh -c "$command")
    judge "$name in dom0" $? "$said"
    withdraw suite
    mkdir -p /done
    : >"/done/$name"
done

echo "== suite: perl"
fresh
for script in builtin modules; do
    code "perl's $script in a guest" 0 ask vm0 "$(on_pool suite "perl $script.pl")"
done
code "nothing is left" 0 ask vm0 'test -z "$(vshmem ipcs --pool suite | grep "^0x")"'
withdraw suite
unset LIMIT
