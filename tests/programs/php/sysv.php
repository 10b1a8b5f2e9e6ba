<?php
// PHP's extensions sysvmsg, sysvsem, sysvshm and shmop, as its manual says, over several processes.
declare(strict_types=1);
require __DIR__ . '/check.php';

$key = ftok(__FILE__, 'v');

// Queues: values of PHP's and plain text, by type, in order.
ok(!msg_queue_exists($key), 'no queue yet');
$queue = msg_get_queue($key, 0600);
ok(msg_queue_exists($key), 'the queue is found by its key');
$child = in_child(function () use ($key): void {
    $queue = msg_get_queue($key);
    foreach ([3 => ['a' => 1, 'b' => [2.5, null]], 1 => 'first', 2 => true] as $type => $value) {
        msg_send($queue, $type, $value) || fail("send $type");
    }
});
ok(msg_receive($queue, -2, $type, 1000, $value) && $type === 1 && $value === 'first', 'the lowest type up to 2');
ok(msg_receive($queue, 3, $type, 1000, $value) && $value === ['a' => 1, 'b' => [2.5, null]], 'an array');
ok(msg_receive($queue, 0, $type, 1000, $value) && $type === 2 && $value === true, 'the rest');
ended_well($child, 'the sender');
$stat = msg_stat_queue($queue);
ok($stat['msg_qnum'] === 0 && $stat['msg_lspid'] === $child && $stat['msg_lrpid'] === getmypid(), 'msg_stat_queue');
ok(!@msg_receive($queue, 0, $type, 10, $value, false, MSG_IPC_NOWAIT, $error), 'nothing to receive');
ok($error === MSG_ENOMSG, 'MSG_ENOMSG');
ok(msg_send($queue, 5, 'longer than that', false), 'a plain text');
ok(!@msg_receive($queue, 0, $type, 6, $value, false, 0, $error) && $error === 7, 'E2BIG');
ok(msg_receive($queue, 0, $type, 6, $value, false, MSG_NOERROR) && $value === 'longer', 'MSG_NOERROR');
ok(msg_set_queue($queue, ['msg_perm.mode' => 0640, 'msg_qbytes' => 1000]), 'msg_set_queue');
$stat = msg_stat_queue($queue);
ok(($stat['msg_perm.mode'] & 0777) === 0640 && $stat['msg_qbytes'] === 1000, 'and it is so');
while (@msg_send($queue, 1, str_repeat('x', 100), false, false, $error)) {
}
ok($error === MSG_EAGAIN, 'a full queue');
ok(msg_remove_queue($queue) && !msg_queue_exists($key), 'removed');

// A semaphore guards a variable that several processes count up.
$shared = shm_attach($key, 10000, 0600);
// A child that ends would give back the use of it that it has inherited, and a later one, which then is the only user, would
// set it to 1 though another holds it: so it is not given back by itself.
$lock = sem_get($key, 1, 0600, false);
shm_put_var($shared, 7, 0);
[$children, $rounds] = [4, 200];
$pids = [];
for ($i = 0; $i < $children; $i++) {
    $pids[] = in_child(function () use ($key, $rounds): void {
        $shared = shm_attach($key);
        $lock = sem_get($key);
        for ($i = 0; $i < $rounds; $i++) {
            sem_acquire($lock) || fail('acquire');
            shm_put_var($shared, 7, shm_get_var($shared, 7) + 1);
            sem_release($lock) || fail('release');
        }
        shm_detach($shared);
    });
}
foreach ($pids as $pid) {
    ended_well($pid, 'a child that counts');
}
ok(shm_get_var($shared, 7) === $children * $rounds, 'the sum');
ok(shm_has_var($shared, 7) && shm_remove_var($shared, 7) && !shm_has_var($shared, 7), 'a variable removed');
ok(!@shm_put_var($shared, 8, str_repeat('x', 20000)), 'a variable that does not fit');

// Who is killed gives the semaphore back.
$holder = in_child(function () use ($lock, $shared): void {
    sem_acquire($lock) || fail('acquire');
    shm_put_var($shared, 9, 'held');
    sleep(60);
});
while (!shm_has_var($shared, 9)) {
    usleep(1000);
}
ok(!sem_acquire($lock, true), 'held by the child');
posix_kill($holder, SIGKILL);
pcntl_waitpid($holder, $status);
ok(sem_acquire($lock), 'and not any more when it is dead');
ok(sem_release($lock) && sem_remove($lock), 'the semaphore is removed');
ok(shm_remove($shared), 'the segment is removed');
shm_detach($shared);

// Plain memory.
$memory = shmop_open($key, 'n', 0600, 4096);
ok(shmop_size($memory) === 4096, 'shmop_size');
ok(@shmop_open($key, 'n', 0600, 4096) === false, 'it exists');
ended_well(in_child(function () use ($key): void {
    $memory = shmop_open($key, 'w', 0, 0);
    shmop_write($memory, 'written by a child', 100) === 18 || fail('shmop_write');
}), 'a child that writes');
ok(shmop_read($memory, 100, 18) === 'written by a child', 'shmop_read');
ok(shmop_delete($memory), 'shmop_delete');
