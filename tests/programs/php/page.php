<?php
// A page of php-fpm: counts its requests, of whichever worker, in a segment under a semaphore.
// Prints the worker, the count, and how many scripts all workers have compiled.
declare(strict_types=1);

$key = 0x464d0001;
$lock = sem_get($key);
$shared = shm_attach($key, 10000);
sem_acquire($lock);
$count = shm_has_var($shared, 1) ? shm_get_var($shared, 1) + 1 : 1;
shm_put_var($shared, 1, $count);
if (isset($_GET['die'])) {
    posix_kill(getmypid(), SIGKILL); // with the semaphore in hand
}
sem_release($lock);
echo getmypid(), ' ', $count, ' ', opcache_get_status()['opcache_statistics']['misses'], "\n";
if (isset($_GET['remove'])) {
    shm_remove($shared);
    sem_remove($lock);
}
