<?php
// opcache keeps compiled scripts in System V segments: what a child compiles, its parent finds.
declare(strict_types=1);
require __DIR__ . '/check.php';

$script = getcwd() . '/compiled.php';
file_put_contents($script, "<?php return 'compiled once';\n");
touch($script, time() - 60); // opcache takes no file that may still be written to
ok(opcache_get_status() !== false, 'opcache is on');
ok(!opcache_is_script_cached($script), 'not compiled yet');
ended_well(in_child(function () use ($script): void {
    (include $script) === 'compiled once' || fail('include');
}), 'a child that compiles');
ok(opcache_is_script_cached($script), 'compiled by the child');
$hits = opcache_get_status()['opcache_statistics']['hits'];
ok((include $script) === 'compiled once', 'the same here');
ok(opcache_get_status()['opcache_statistics']['hits'] > $hits, 'taken from the cache');
