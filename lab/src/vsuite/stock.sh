#!/bin/sh
# stock.sh WHAT SIZE JOBS: a stock program does parallel work once, and what it has made is checked.
#
#   compress   zstd compresses SIZE MiB of text by JOBS threads
#   make       make builds SIZE copies of the lab's program pingpong, of three files of C, JOBS at a time
#   validate   xmllint parses SIZE files of XML, JOBS at a time
#
# Prints "WHAT SIZE NANOSECONDS ANSWER"; the answer is how much was made rightly. What is prepared or
# checked is not timed.
set -eu

what=$1 size=$2 jobs=$3
sources=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

timed() { # timed COMMAND...
    begun=$(date +%s%N)
    "$@"
    took=$(($(date +%s%N) - begun))
}

case $what in
compress)
    seq 100000000 | head -c "${size}M" >text
    timed zstd -q -f "-T$jobs" -3 text -o packed
    zstd -q -d -c packed | cmp - text
    answer=$size
    ;;
make)
    for copy in $(seq "$size"); do
        for file in pingpong support sysv; do
            ln -s "$sources/$file.c" "$copy-$file.c"
        done
    done
    cat >Makefile <<'END'
all: $(COPIES:%=pingpong-%)
%.o: %.c
	cc -std=gnu11 -O2 -I$(SOURCES) -c -o $@ $<
pingpong-%: %-pingpong.o %-support.o %-sysv.o
	cc -o $@ $^
END
    timed make -s "-j$jobs" "SOURCES=$sources" "COPIES=$(seq -s ' ' "$size")"
    answer=$(find . -name 'pingpong-*' -perm -u+x | wc -l)
    ;;
validate)
    {
        echo '<list>'
        seq -f '<item number="%.0f">text &amp; more</item>' 20000
        echo '</list>'
    } >list.xml
    for copy in $(seq "$size"); do
        ln -s list.xml "$copy.xml"
    done
    validate() { seq -f '%.0f.xml' "$size" | xargs -n 1 -P "$jobs" xmllint --noout; }
    timed validate
    answer=$size
    ;;
*)
    echo "stock.sh: there is no $what" >&2
    exit 2
    ;;
esac
[ "$answer" -eq "$size" ] || {
    echo "stock.sh: $answer of $size were made" >&2
    exit 1
}
echo "$what $size $took $answer"
