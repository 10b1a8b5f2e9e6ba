#!/bin/bash
# PHP: its System V extensions, which it opens with RTLD_DEEPBIND, and opcache in System V segments.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

need php php-cli
for module in pcntl posix shmop sysvmsg sysvsem sysvshm 'Zend OPcache'; do
    php -m | grep -qx "$module" ||
        skip "PHP's module $module is not installed; 'apt-get install php-cli' brings it"
done
opcache=(php -d opcache.enable_cli=1 -d opcache.preferred_memory_model=shm)
needs_sysv php "$here/php/sysv.php"
needs_sysv "${opcache[@]}" "$here/php/opcache.php"

"${on_vshmem[@]}" php "$here/php/sysv.php" >sysv.log 2>&1 || {
    cat sysv.log
    fail "sysv.php"
}
"${on_vshmem[@]}" "${opcache[@]}" "$here/php/opcache.php" >opcache.log 2>&1 || {
    cat opcache.log
    fail "opcache.php"
}
nothing_left || fail "objects are left: $(objects)"
echo "$(cat sysv.log opcache.log | grep -c '^ok') assertions"
