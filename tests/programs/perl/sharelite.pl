#!/usr/bin/perl
# IPC::ShareLite keeps a value in chained segments behind a reader/writer lock of semaphores.
use strict;
use warnings;
use IPC::ShareLite qw(:lock);
use POSIX ();
use Test::More;

my $key = ($$ & 0xffff) | 0x560000;
my $share = IPC::ShareLite->new(-key => $key, -create => 'yes', -exclusive => 'yes', -destroy => 'yes', -size => 4096)
    or die "new: $!";
$share->store(0);

# The share as a child opens it: by its key, with the size that it was made with.
sub same_share {
    return IPC::ShareLite->new(-key => $key, -create => 'no', -destroy => 'no', -size => 4096) || POSIX::_exit(1);
}

# Children leave by _exit: perl would destroy their copy of $share, and with it the segment.

# Counting in several processes loses nothing under the lock.
my ($children, $rounds) = (4, 250);
for (1 .. $children) {
    my $pid = fork() // die "fork: $!";
    next if $pid;
    my $mine = same_share();
    for (1 .. $rounds) {
        $mine->lock(LOCK_EX);
        $mine->store($mine->fetch + 1);
        $mine->unlock;
    }
    POSIX::_exit(0);
}
for (1 .. $children) {
    wait;
    is($?, 0, 'child');
}
is($share->fetch, $children * $rounds, 'the sum');

# A value longer than a segment is chained over several.
my $long = join ' ', 1 .. 20_000;
$share->store($long);
my $pid = fork() // die "fork: $!";
if (!$pid) {
    my $mine = same_share();
    POSIX::_exit($mine->fetch eq $long ? 0 : 1);
}
waitpid $pid, 0;
is($?, 0, 'a long value in another process');
ok($share->num_segments > 1, 'in several segments');

# A holder that is killed gives its lock back.
$pid = fork() // die "fork: $!";
if (!$pid) {
    my $mine = same_share();
    $mine->lock(LOCK_EX);
    kill KILL => $$;
}
waitpid $pid, 0;
is($? & 127, 9, 'killed while it held the lock');
local $SIG{ALRM} = sub { die "the lock of a killed process is still held\n" };
alarm 20;
ok($share->lock(LOCK_EX), 'locked again');
alarm 0;
$share->unlock;
undef $share;
done_testing;
