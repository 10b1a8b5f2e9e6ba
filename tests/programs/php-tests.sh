#!/bin/bash
# PHP: the tests of its own for the System V extensions, of the source package.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

need php php-cli
need curl curl
for module in shmop sysvmsg sysvsem sysvshm; do
    php -m | grep -qx "$module" ||
        skip "PHP's module $module is not installed; 'apt-get install php-cli' brings it"
done
package=php$(php -r 'echo PHP_MAJOR_VERSION, ".", PHP_MINOR_VERSION;')
needs_sysv php "$here/php/sysv.php"

# Debian's packages leave the tests out. The source is beside one of the versions that apt knows.
cache=${VSHMEM_CACHE:-${XDG_CACHE_HOME:-$home/.cache}/vshmem}/php
mkdir -p "$cache"
source=$(find "$cache" -name "${package}_*.orig.tar.xz" -print -quit)
for version in $(apt-cache madison "$package-cli" | cut -d'|' -f2); do
    [ -z "$source" ] || break
    file=${package}_${version%-*}.orig.tar.xz
    package_at=$(apt-get download --print-uris "$package-cli=$version" 2>/dev/null | cut -d"'" -f2)
    if curl -sfL --max-time 120 -o "$cache/$file.new" "${package_at%/*}/$file"; then
        mv "$cache/$file.new" "$cache/$file"
        source=$cache/$file
    fi
done
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
