<?php
// What the tests in PHP share.
declare(strict_types=1);

error_reporting(E_ALL);

// A warning that no test expects is a failure.
set_error_handler(function (int $level, string $text, string $file, int $line): bool {
    if (!(error_reporting() & $level)) {
        return true; // expected: the call has an @ before it
    }
    fail("$text ($file:$line)");
});

function fail(string $what): never
{
    echo "not ok - $what\n";
    // Not exit(): it would run what the parent has registered, in a child too.
    posix_kill(posix_getpid(), SIGKILL);
    exit(1);
}

function ok(bool $holds, string $what): void
{
    $holds || fail($what);
    echo "ok - $what\n";
}

// Starts a child that does this and ends.
function in_child(callable $work): int
{
    $pid = pcntl_fork();
    if ($pid === 0) {
        $work();
        exit(0);
    }
    return $pid;
}

function ended_well(int $pid, string $what): void
{
    ok(pcntl_waitpid($pid, $status) === $pid && $status === 0, $what);
}
