# hold.pl KEY CHANGE [kill]: changes a semaphore with SEM_UNDO, says so, and keeps it so; or kills itself.
my ($key, $change, $then) = @ARGV;
my $set = semget(hex $key, 1, 01600) // die "semget: $!";
semop($set, pack("s!3", 0, $change, 0x1000)) or die "semop: $!";
kill 9, $$ if $then;
$| = 1;
print "held\n";
sleep 3600;
