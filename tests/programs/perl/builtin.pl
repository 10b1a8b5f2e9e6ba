#!/usr/bin/perl
# perl's own shmget, semget and msgget families, as perlfunc documents them.
use strict;
use warnings;
use Errno qw(EAGAIN E2BIG EEXIST EFBIG EIDRM EINVAL ENOENT ENOMSG);
use IPC::SysV qw(:all);
use Test::More;

my $parent = $$;
my $key = ftok($0, 'p') // die "ftok: $!";

# Runs the code in a child process and returns its exit status.
sub in_child {
    my ($code) = @_;
    my $pid = fork() // die "fork: $!";
    if (!$pid) {
        # The child's failures are told by its status, not by its own plan.
        my $ok = eval { $code->() };
        warn $@ if $@;
        require POSIX;
        POSIX::_exit($ok ? 0 : 1);
    }
    return $pid;
}

sub reap {
    my ($pid) = @_;
    waitpid($pid, 0) == $pid or die "waitpid: $!";
    return $?;
}

sub errno_is {
    my ($errno, $what) = @_;
    is($! + 0, $errno, $what);
}

# Waits until the condition holds, ten seconds at most.
sub until_true {
    my ($condition) = @_;
    for (1 .. 1000) {
        return 1 if $condition->();
        select(undef, undef, undef, 0.01);
    }
    return 0;
}

# Has the child entered its wait? It sleeps for a while without a change of state.
sub sleeps {
    my ($pid) = @_;
    for (1 .. 10) {
        open my $stat, '<', "/proc/$pid/stat" or return 0;
        (readline $stat) =~ /\) S / or return 0;
        select(undef, undef, undef, 0.01);
    }
    return 1;
}

subtest 'shared memory' => sub {
    ok(!defined shmget($key, 100, 0600), 'no segment of that key yet');
    errno_is(ENOENT, 'ENOENT');
    my $id = shmget($key, 100, IPC_CREAT | IPC_EXCL | 0600);
    ok(defined $id, 'made') or die "shmget: $!";
    ok(!defined shmget($key, 100, IPC_CREAT | IPC_EXCL | 0600), 'IPC_EXCL');
    errno_is(EEXIST, 'EEXIST');
    ok(!defined shmget($key, 101, 0600), 'smaller than asked for');
    errno_is(EINVAL, 'EINVAL');
    is(shmget($key, 0, 0), $id, 'the same id again');

    my $buffer;
    ok(shmread($id, $buffer, 0, 100), 'shmread');
    is($buffer, "\0" x 100, 'a new segment is zeros');
    ok(shmwrite($id, 'abc', 10, 5), 'shmwrite');
    ok(shmread($id, $buffer, 9, 7), 'shmread');
    is($buffer, "\0abc\0\0\0", 'short strings are padded with nulls');
    ok(!shmread($id, $buffer, 90, 20), 'past the end');
    errno_is(14, 'EFAULT');

    my $child = in_child(sub {
        my $same = shmget($key, 0, 0);
        shmwrite($same, 'from child', 50, 10);
    });
    is(reap($child), 0, 'child wrote');
    ok(shmread($id, $buffer, 50, 10), 'shmread');
    is($buffer, 'from child', 'seen by the parent');

    my $data = '';
    ok(shmctl($id, IPC_STAT, $data), 'IPC_STAT');
    ok(length $data, 'with data');
    is(shmctl($id, IPC_RMID, 0), '0 but true', 'IPC_RMID');
    ok(!shmread($id, $buffer, 0, 1), 'gone');
    ok($! == EINVAL || $! == EIDRM, 'EINVAL or EIDRM');
    done_testing;
};

subtest 'semaphores' => sub {
    my $id = semget($key, 3, IPC_CREAT | IPC_EXCL | 0600);
    ok(defined $id, 'made') or die "semget: $!";
    ok(semctl($id, 0, SETALL, pack('s!*', 1, 2, 3)), 'SETALL');
    my $values = '';
    ok(semctl($id, 0, GETALL, $values), 'GETALL');
    is_deeply([unpack 's!*', $values], [1, 2, 3], 'values');
    is(semctl($id, 2, GETVAL, 0), 3, 'GETVAL');
    ok(semctl($id, 1, SETVAL, 7), 'SETVAL');
    is(semctl($id, 1, GETVAL, 0), 7, 'GETVAL');

    ok(!semop($id, pack('s!3 s!3', 1, -1, 0, 0, -2, IPC_NOWAIT)), 'all or nothing');
    errno_is(EAGAIN, 'EAGAIN');
    is(semctl($id, 1, GETVAL, 0), 7, 'nothing was done');
    ok(!semop($id, pack('s!3', 3, 1, 0)), 'no such semaphore');
    errno_is(EFBIG, 'EFBIG');
    ok(semop($id, pack('s!3 s!3', 1, -7, 0, 0, -1, 0)), 'all');
    ok(semop($id, pack('s!3', 1, 0, 0)), 'wait for zero');
    is(semctl($id, 0, GETPID, 0), $parent, 'GETPID');

    # A child waits until the parent lets it go, then gives with SEM_UNDO and ends.
    my $child = in_child(sub {
        semop($id, pack('s!3', 0, -1, 0)) && semop($id, pack('s!3', 2, 5, SEM_UNDO))
            && semop($id, pack('s!3', 1, 1, 0));
    });
    ok(until_true(sub { semctl($id, 0, GETNCNT, 0) == 1 }), 'GETNCNT counts the child');
    is(semctl($id, 0, GETZCNT, 0), '0 but true', 'GETZCNT does not');
    ok(semop($id, pack('s!3', 0, 1, 0)), 'let it go');
    is(reap($child), 0, 'child');
    is(semctl($id, 1, GETVAL, 0), 1, 'what the child gave stays');
    is(semctl($id, 2, GETVAL, 0), 3, 'SEM_UNDO takes back');
    is(semctl($id, 1, GETPID, 0), $child, 'GETPID of the child');

    # Removal wakes who waits.
    $child = in_child(sub { !semop($id, pack('s!3', 0, -1, 0)) && $! == EIDRM });
    ok(until_true(sub { semctl($id, 0, GETNCNT, 0) == 1 }), 'waits');
    ok(semctl($id, 0, IPC_RMID, 0), 'IPC_RMID');
    is(reap($child), 0, 'EIDRM in the child');
    done_testing;
};

subtest 'message queues' => sub {
    my $id = msgget($key, IPC_CREAT | IPC_EXCL | 0600);
    ok(defined $id, 'made') or die "msgget: $!";
    my $buffer;
    ok(!msgrcv($id, $buffer, 10, 0, IPC_NOWAIT), 'empty');
    errno_is(ENOMSG, 'ENOMSG');
    ok(msgsnd($id, pack('l! a*', $_, "message $_"), 0), "send $_") for 5, 3, 4, 3;
    my $receive = sub {
        my $got = msgrcv($id, $buffer, 1000, $_[0], IPC_NOWAIT);
        return $got ? [unpack 'l! a*', $buffer] : $! + 0;
    };
    is_deeply($receive->(4), [4, 'message 4'], 'by type');
    is_deeply($receive->(-4), [3, 'message 3'], 'lowest type first');
    is_deeply($receive->(0), [5, 'message 5'], 'in order');
    is($receive->(9), ENOMSG, 'none of that type');
    ok(!msgrcv($id, $buffer, 3, 0, IPC_NOWAIT), 'too long');
    errno_is(E2BIG, 'E2BIG');
    ok(msgrcv($id, $buffer, 3, 0, MSG_NOERROR), 'MSG_NOERROR cuts it');
    is((unpack 'l! a*', $buffer)[1], 'mes', 'the first bytes');
    ok(!msgsnd($id, pack('l! a*', 0, 'x'), 0), 'type 0');
    errno_is(EINVAL, 'EINVAL');

    # An echo in another process, both waiting in turn.
    my $rounds = 200;
    my $child = in_child(sub {
        my $text;
        for (1 .. $rounds) {
            msgrcv($id, $text, 8192, 1, 0) or return 0;
            msgsnd($id, pack('l! a*', 2, scalar reverse substr($text, 8)), 0) or return 0;
        }
        return 1;
    });
    my $wrong = 0;
    for my $round (1 .. $rounds) {
        my $text = join ',', 1 .. $round * 5;
        msgsnd($id, pack('l! a*', 1, $text), 0) or die "msgsnd: $!";
        msgrcv($id, $buffer, 8192, 2, 0) or die "msgrcv: $!";
        ++$wrong if substr($buffer, 8) ne reverse $text;
    }
    is($wrong, 0, "$rounds messages there and back");
    is(reap($child), 0, 'child');

    # A full queue makes the sender wait.
    my $filled = 0;
    ++$filled while msgsnd($id, pack('l! a*', 1, 'x' x 1000), IPC_NOWAIT);
    errno_is(EAGAIN, 'EAGAIN when full');
    is($filled, 16, '16 messages of 1000 bytes in 16384');
    $child = in_child(sub { msgsnd($id, pack('l! a*', 7, 'y' x 1000), 0) });
    ok(until_true(sub { sleeps($child) }), 'the sender waits');
    ok(msgrcv($id, $buffer, 1000, 1, 0), 'make room');
    is(reap($child), 0, 'the sender went on');
    ok($receive->(7)->[1] eq 'y' x 1000, 'its message is there');

    $child = in_child(sub { !msgrcv($id, $buffer, 10, 99, 0) && $! == EIDRM });
    ok(until_true(sub { sleeps($child) }), 'waits');
    ok(msgctl($id, IPC_RMID, 0), 'IPC_RMID');
    is(reap($child), 0, 'EIDRM in the child');
    done_testing;
};

done_testing;
