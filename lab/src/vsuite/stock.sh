#!/bin/sh
# stock.sh WHAT SIZE JOBS [PROJECT]: a stock program does parallel work once, and what it has made is checked.
#
#   compress   zstd compresses SIZE MiB of text by JOBS threads
#   make       make compiles SIZE files of a C project, whose sources are in PROJECT, JOBS at a time
#   validate   xmllint validates SIZE files of XML against a schema, JOBS at a time
#   dbench     dbench does what JOBS clients of a file server do, for SIZE seconds
#
# Prints "WHAT SIZE VALUE ANSWER", and before that profile.sh's line. The value is nanoseconds, or of dbench
# MB/s; the answer is how much was made rightly. All files are in memory. What is prepared or checked is
# not timed.
set -eu

what=$1 size=$2 jobs=$3
here=$(cd "$(dirname "$0")" && pwd)
memory=/dev/shm
[ -w "$memory" ] || memory=${TMPDIR:-/tmp}
work=$(mktemp -d "$memory/vsuite.XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work"

timed() { # timed COMMAND...
    "$here/profile.sh" "$@" >said 2>errors || {
        cat said errors >&2
        exit 1
    }
    value=$(awk '$1 == "profile" { print $2 }' said)
}

case $what in
compress)
    seq 100000000 | head -c "${size}M" >text
    timed zstd -q -f "-T$jobs" -3 text -o packed
    zstd -q -d -c packed | cmp - text
    answer=$size
    ;;
make)
    cp -r "$4/." .
    # Its build defines what that one tells.
    find . -name '*.c' ! -name aeron_version.c | LC_ALL=C sort | head -n "$size" >files
    cat >Makefile <<'END'
FLAGS := -std=c11 -O2 -DNDEBUG -D_DEFAULT_SOURCE -D_FILE_OFFSET_BITS=64 -DHAVE_EPOLL -DHAVE_POLL -I.
all: $(patsubst %.c,%.o,$(shell cat files))
%.o: %.c
	cc $(FLAGS) -c -o $@ $<
END
    timed make -s "-j$jobs"
    answer=$(find . -name '*.o' -size +0 | wc -l)
    ;;
validate)
    {
        echo '<list>'
        seq -f '<item number="%.0f">text &amp; more</item>' 20000
        echo '</list>'
    } >list.xml
    cat >list.xsd <<'END'
<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema">
  <xs:element name="list"><xs:complexType><xs:sequence>
    <xs:element name="item" maxOccurs="unbounded"><xs:complexType><xs:simpleContent>
      <xs:extension base="xs:string"><xs:attribute name="number" type="xs:positiveInteger"/></xs:extension>
    </xs:simpleContent></xs:complexType></xs:element>
  </xs:sequence></xs:complexType></xs:element>
</xs:schema>
END
    for copy in $(seq "$size"); do
        ln -s list.xml "$copy.xml"
    done
    echo 'seq -f %.0f.xml "$1" | xargs -n 1 -P "$2" xmllint --noout --schema list.xsd' >validate
    timed sh validate "$size" "$jobs"
    answer=$(grep -c ' validates$' errors)
    ;;
dbench)
    mkdir files
    timed dbench -D files -t "$size" "$jobs"
    value=$(awk '$1 == "Throughput" { print $2 }' said)
    answer=$(awk -v jobs="$jobs" -v size="$size" \
        '$1 == "Throughput" && $2 > 0 && $4 == jobs && $5 == "clients" { print size }' said)
    ;;
*)
    echo "stock.sh: there is no $what" >&2
    exit 2
    ;;
esac
[ "${answer:-0}" -eq "$size" ] || {
    cat errors >&2
    echo "stock.sh: ${answer:-0} of $size were made" >&2
    exit 1
}
grep '^profile ' said
echo "$what $size $value $answer"
