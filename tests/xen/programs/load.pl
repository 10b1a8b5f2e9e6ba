# Takes a mutex, changes two counters that must agree, and says how far it is. Dies if they don't agree.
my $set = semget(0x8888, 1, 0600);
if (!defined $set) {
    $set = semget(0x8888, 1, 03600);
    if (defined $set) { semctl($set, 0, 16, 1) or die "SETVAL: $!" }
    else { select undef, undef, undef, 0.5; $set = semget(0x8888, 1, 0600) // die "semget: $!" }
}
my $segment = shmget(0x8888, 4096, 01600) // die "shmget: $!";
$| = 1;
for (my $turn = 1; ; $turn++) {
    semop($set, pack("s!3", 0, -1, 0x1000)) or die "P: $!";
    shmread($segment, my $both, 0, 16) or die "shmread: $!";
    my ($one, $other) = unpack("qq", $both);
    # Who is killed in between leaves the first one larger by one; each killing may.
    die "$one and $other do not agree" if $one < $other;
    shmwrite($segment, pack("q", $one + 1), 0, 8) or die "shmwrite: $!";
    shmwrite($segment, pack("q", $one + 1), 8, 8) or die "shmwrite: $!";
    semop($set, pack("s!3", 0, 1, 0x1000)) or die "V: $!";
    print "$turn\n" if $turn % 10 == 0;
}
