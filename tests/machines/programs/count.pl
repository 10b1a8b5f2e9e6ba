# turns.pl ME: takes 200 turns with another process, which has the other number, 0 or 1, and counts them.
use strict;
use warnings;

my ($me, $rounds) = ($ARGV[0], 200);
my $set = semget(0x5151, 2, 01600) // die "semget: $!";
my $segment = shmget(0x5151, 4096, 01600) // die "shmget: $!";
for my $round (1 .. $rounds) {
    semop($set, pack("s!3", $me, -1, 0)) or die "semop: $!";
    shmread($segment, my $count, 0, 8) or die "shmread: $!";
    shmwrite($segment, pack("q", unpack("q", $count) + 1), 0, 8) or die "shmwrite: $!";
    semop($set, pack("s!3", 1 - $me, 1, 0)) or die "semop: $!";
}
