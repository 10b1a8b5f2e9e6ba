# turns.pl RANK ROUNDS: two processes take turns with two semaphores and count in a segment; the first one prints the sum.
my ($rank, $rounds) = @ARGV;
my $set = semget(0x2222, 2, 01600); defined $set or die "semget: $!";
my $segment = shmget(0x2222, 100000, 01600); defined $segment or die "shmget: $!";
sub change { semop($set, pack("s!3", @_)) or die "semop: $!" }
for my $turn (1 .. $rounds) {
    change($rank, -1, 0) if $rank == 1 or $turn > 1;
    my $count;
    shmread($segment, $count, 90000, 8) or die "shmread: $!";
    shmwrite($segment, pack("q", unpack("q", $count) + 1), 90000, 8) or die "shmwrite: $!";
    change(1 - $rank, 1, 0);
}
if ($rank == 0) {
    change(0, -1, 0);
    shmread($segment, my $count, 90000, 8);
    print unpack("q", $count), "\n";
    semctl($set, 0, 0, 0); shmctl($segment, 0, 0);
}
