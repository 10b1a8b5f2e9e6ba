#!/bin/bash
# PHP: the tests of its own for the System V extensions, of the source package.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

need php php-cli
for module in shmop sysvmsg sysvsem sysvshm; do
    php -m | grep -qx "$module" ||
        skip "PHP's module $module is not installed; 'apt-get install php-cli' brings it"
done
package=php$(php -r 'echo PHP_MAJOR_VERSION, ".", PHP_MINOR_VERSION;')
needs_sysv php "$here/php/sysv.php"

# Debian's packages leave the tests out. apt verifies the source, if it has lists of sources: they are our
# own, from where the system has its packages, with the keys of those.
cache=${VSHMEM_CACHE:-${XDG_CACHE_HOME:-$home/.cache}/vshmem}/php-source
mkdir -p "$cache"
source=$(find "$cache" -name "${package}_*.orig.tar.xz" -print -quit)
if [ -z "$source" ]; then
    mkdir -p apt/parts apt/lists/partial apt/cache/archives/partial
    for list in /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources; do
        [ ! -f "$list" ] || sed -E 's/^deb[[:blank:]]/deb-src /; s/^Types:.*/Types: deb-src/' "$list" \
            >"apt/parts/$(basename "$list")"
    done
    from=(-o Dir::Etc::SourceList=/dev/null -o "Dir::Etc::SourceParts=$dir/apt/parts"
        -o "Dir::State::Lists=$dir/apt/lists" -o "Dir::Cache=$dir/apt/cache")
    # One of the places may not answer, or lack a version.
    timeout 100 apt-get -qq "${from[@]}" update >>apt.log 2>&1 || true
    for version in $(apt-cache "${from[@]}" madison "$package" | cut -d'|' -f2 | sort -rVu); do
        (cd apt/cache && timeout 100 apt-get -qq "${from[@]}" --download-only source "$package=$version") \
            >>apt.log 2>&1 || continue
        source=$cache/${package}_${version%-*}.orig.tar.xz
        mv "apt/cache/$(basename "$source")" "$source"
        break
    done
fi
[ -n "$source" ] || cat apt.log
[ -n "$source" ] || skip "the source of $package, which holds the tests, can't be fetched"
tar xf "$source" --strip-components=1 --wildcards '*/ext/sysv*/tests' '*/ext/shmop/tests' '*/run-tests.php'

"${on_vshmem[@]}" env TEST_PHP_EXECUTABLE="$(command -v php)" NO_INTERACTION=1 \
    php run-tests.php -q --no-color ext/sysvmsg/tests ext/sysvsem/tests ext/sysvshm/tests ext/shmop/tests \
    >suite.log 2>&1 || {
    cat suite.log
    fail "PHP's own tests"
}
# As on a kernel, some leave what they made.
equal "objects that are left" "segments 3, sets 0, queues 1" "$(objects)"
passed=$(sed -n 's/^Tests passed *: *\([0-9]*\) .*/\1/p' suite.log)
[ "${passed:-0}" -ge 20 ] || fail "only ${passed:-0} tests passed"
echo "$passed tests of PHP's own"
