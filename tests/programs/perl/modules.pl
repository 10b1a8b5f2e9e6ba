#!/usr/bin/perl
# IPC::SysV, IPC::SharedMem, IPC::Semaphore and IPC::Msg, as their manuals say.
use strict;
use warnings;
use Errno qw(EINVAL EIDRM ENOMSG);
use IPC::Msg;
use IPC::Semaphore;
use IPC::SharedMem;
use IPC::SysV qw(:all);
use POSIX ();
use Test::More;

sub in_child {
    my ($code) = @_;
    my $pid = fork() // die "fork: $!";
    if (!$pid) {
        my $ok = eval { $code->() };
        warn $@ if $@;
        POSIX::_exit($ok ? 0 : 1);
    }
    waitpid($pid, 0) == $pid or die "waitpid: $!";
    return ($?, $pid);
}

my $started = time;

# A time in a *_ds structure is one of this test's, or zero where nothing has happened yet.
sub is_recent {
    my ($time, $what) = @_;
    ok($time >= $started - 1 && $time <= time + 1, "$what is now");
}

subtest 'IPC::SharedMem' => sub {
    my $shm = IPC::SharedMem->new(IPC_PRIVATE, 8000, IPC_CREAT | 0640) or die "new: $!";
    my $other = IPC::SharedMem->new(IPC_PRIVATE, 10, IPC_CREAT | 0600) or die "new: $!";
    isnt($shm->id, $other->id, 'IPC_PRIVATE makes a new one each time');
    ok($other->remove, 'removed');
    ok($other->is_removed, 'is_removed');

    ok($shm->write('pack', 4000, 4), 'write');
    is($shm->read(3999, 6), "\0pack\0", 'read');
    my $stat = $shm->stat;
    is($stat->segsz, 8000, 'segsz');
    is($stat->mode & 0777, 0640, 'mode');
    is($stat->uid, $>, 'uid');
    is($stat->cuid, $>, 'cuid');
    is($stat->gid, $) + 0, 'gid');
    is($stat->cpid, $$, 'cpid');
    is($stat->lpid, $$, 'lpid');
    is($stat->nattch, 0, 'nattch');
    is_recent($stat->ctime, 'ctime');
    is_recent($stat->atime, 'atime');
    is_recent($stat->dtime, 'dtime');

    ok($shm->attach, 'attach');
    ok($shm->addr, 'addr');
    is($shm->stat->nattch, 1, 'nattch 1');
    my ($status, $child) = in_child(sub {
        # Inherited by fork, and once more by itself.
        $shm->stat->nattch == 2 or return 0;
        my $again = shmat($shm->id, undef, 0) // return 0;
        $shm->stat->nattch == 3 or return 0;
        memwrite($again, 'child', 0, 5) or return 0;
        defined shmdt($again);
    });
    is($status, 0, 'child');
    is($shm->stat->nattch, 1, 'nattch after the child');
    is($shm->stat->lpid, $child, 'lpid is the child');
    is($shm->read(0, 5), 'child', 'its bytes');
    ok($shm->remove, 'remove while attached');
    ok($shm->is_removed, 'is_removed');
    is($shm->read(4000, 4), 'pack', 'still readable');

    # Attach by id after removal, as Linux allows.
    ($status) = in_child(sub {
        my $late = shmat($shm->id, undef, SHM_RDONLY) // return 0;
        memread($late, my $text, 4000, 4) or return 0;
        $text eq 'pack' && defined shmdt($late);
    });
    is($status, 0, 'attach after removal');
    my $id = $shm->id;
    ok($shm->detach, 'detach');
    ok(!defined shmat($id, undef, 0), 'gone with the last one');
    ok($! == EINVAL || $! == EIDRM, 'EINVAL or EIDRM');
    done_testing;
};

subtest 'IPC::Semaphore' => sub {
    my $sem = IPC::Semaphore->new(IPC_PRIVATE, 10, IPC_CREAT | 0600) or die "new: $!";
    is_deeply([$sem->getall], [(0) x 10], 'zeros');
    ok($sem->setall(1 .. 10), 'setall');
    is_deeply([$sem->getall], [1 .. 10], 'getall');
    ok($sem->setval(3, 99), 'setval');
    is($sem->getval(3), 99, 'getval');
    is($sem->getncnt(3), 0, 'getncnt');
    is($sem->getzcnt(3), 0, 'getzcnt');
    is($sem->stat->otime, 0, 'otime before the first semop');
    ok($sem->op(0, -1, IPC_NOWAIT, 9, 5, 0), 'op');
    is($sem->getval(9), 15, 'op did it');
    is($sem->getpid(9), $$, 'getpid');
    ok(!$sem->op(0, -1, IPC_NOWAIT), 'op that would wait');
    my $stat = $sem->stat;
    is($stat->nsems, 10, 'nsems');
    is($stat->mode & 0777, 0600, 'mode');
    is($stat->cuid, $>, 'cuid');
    is_recent($stat->ctime, 'ctime');
    is_recent($stat->otime, 'otime');
    ok(defined $sem->set(mode => 0640), 'set');
    is($sem->stat->mode & 0777, 0640, 'mode changed');
    my ($status) = in_child(sub { $sem->op(1, 1, SEM_UNDO, 2, -3, SEM_UNDO) });
    is($status, 0, 'child');
    is($sem->getval(1), 2, 'SEM_UNDO of a gift');
    is($sem->getval(2), 3, 'SEM_UNDO of a taking');
    my $id = $sem->id;
    ok($sem->remove, 'remove');
    ok(!defined semctl($id, 0, GETVAL, 0), 'gone');
    done_testing;
};

subtest 'IPC::Msg' => sub {
    my $msg = IPC::Msg->new(IPC_PRIVATE, IPC_CREAT | 0600) or die "new: $!";
    ok($msg->snd(42, 'answer'), 'snd');
    my $stat = $msg->stat;
    is($stat->qnum, 1, 'qnum');
    is($stat->qbytes, 16384, 'qbytes');
    is($stat->lspid, $$, 'lspid');
    is($stat->lrpid, 0, 'lrpid');
    is($stat->rtime, 0, 'rtime');
    is_recent($stat->stime, 'stime');
    my ($status, $child) = in_child(sub {
        my $text;
        $msg->rcv($text, 256) == 42 && $text eq 'answer';
    });
    is($status, 0, 'child received it');
    $stat = $msg->stat;
    is($stat->qnum, 0, 'qnum');
    is($stat->lrpid, $child, 'lrpid is the child');
    is_recent($stat->rtime, 'rtime');
    ok(defined $msg->set(qbytes => 1000), 'set');
    is($msg->stat->qbytes, 1000, 'qbytes changed');
    ok(!$msg->snd(1, 'x' x 1001, IPC_NOWAIT), 'more than qbytes');
    ok($msg->snd(1, 'x' x 1000, IPC_NOWAIT), 'as much as qbytes');
    my $id = $msg->id;
    ok($msg->remove, 'remove');
    ok(!msgsnd($id, pack('l! a*', 1, 'x'), IPC_NOWAIT), 'gone');
    ok($! == EINVAL || $! == EIDRM, 'EINVAL or EIDRM');
    done_testing;
};

done_testing;
