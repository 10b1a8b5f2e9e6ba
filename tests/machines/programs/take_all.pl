# Takes all memory that there is, writes to all of it, and gives it back; it must read as zeros. Then what takes memory of
# other tables.
my @segments;
while (@segments < 1000) {
    my $id = shmget(0, 1 << 20, 01600);
    defined $id or last;
    shmread($id, my $content, 0, 1 << 20) or die "shmread: $!";
    $content =~ /[^\0]/ and die "something was left in it";
    shmwrite($id, "x" x (1 << 20), 0, 1 << 20) or die "shmwrite: $!";
    push @segments, $id;
}
my ($why, $count) = ($! + 0, scalar @segments);
my @sets = grep { defined } map { semget(0, 250, 01600) } 1 .. 500;
my @queues = grep { defined } map { msgget(0, 01600) } 1 .. 200;
msgsnd($_, pack("l! a*", 1, "y" x 4000), 04000) for @queues;
semctl($_, 0, 0, 0) or die "semctl: $!" for @sets;
msgctl($_, 0, 0) or die "msgctl: $!" for @queues;
shmctl($_, 0, 0) or die "shmctl: $!" for @segments;
print "$count until error $why\n";
