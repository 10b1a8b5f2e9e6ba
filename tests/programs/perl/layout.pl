#!/usr/bin/perl
# Makes the IPC objects that read_pool.py looks for, says so, and waits.
use strict;
use warnings;
use IPC::SysV qw(:all);

sub must {
    my ($result, $what) = @_;
    defined $result && $result or die "$what: $!\n";
    return $result;
}

# Ids are used anew: sequence numbers rise, entries and blocks come back from free lists.
for my $round (1 .. 3) {
    my @segments = map { must(shmget(IPC_PRIVATE, $_ * 3000, IPC_CREAT | 0600), 'shmget') } 1 .. 5;
    my @sets = map { must(semget(IPC_PRIVATE, $_ * 7, IPC_CREAT | 0600), 'semget') } 1 .. 5;
    must(shmctl($_, IPC_RMID, 0), 'shmctl') for @segments;
    must(semctl($_, 0, IPC_RMID, 0), 'semctl') for @sets;
}

my $segment = must(shmget(0x1001, 5000, IPC_CREAT | 0640), 'shmget');
must(shmat($segment, undef, 0), 'shmat') for 1, 2;
must(shmwrite($segment, 'in the segment', 10, 14), 'shmwrite');

my $set = must(semget(0x1002, 5, IPC_CREAT | 0600), 'semget');
must(semctl($set, 0, SETALL, pack 's!*', 10, 20, 30, 40, 32767), 'SETALL');
must(semop($set, pack 's!3', 3, -2, SEM_UNDO), 'semop');

my $queue = must(msgget(-0x1003, IPC_CREAT | 0600), 'msgget');
for my $message ([4, 'gone'], [7, 'short'], [9, 'y' x 700], [8, '']) {
    must(msgsnd($queue, pack('l! a*', @$message), 0), 'msgsnd');
}
must(msgrcv($queue, my $text, 100, 0, 0), 'msgrcv');

$| = 1;
print "ready $segment $set $queue\n";
sleep 60;
