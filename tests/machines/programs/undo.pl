# What one process has added and leaves is undone for another, which sees it.
my $set = semget(0x3333, 1, 01600); defined $set or die "semget: $!";
if ($ENV{VSHMEM_RANK} == 0) {
    semop($set, pack("s!3", 0, 5, 0x1000)) or die "semop: $!";    # SEM_UNDO
    sleep 2;
} else {
    semop($set, pack("s!3", 0, -5, 0)) or die "semop: $!";
    semop($set, pack("s!3", 0, 5, 0)) or die "semop: $!";
    semop($set, pack("s!3", 0, 0, 0)) or die "semop: $!";         # wait for zero: for the other's undo
    print "undone\n";
    semctl($set, 0, 0, 0);
}
