# Makes sets, segments and queues by the keys that false.pl uses.
for (1 .. 20) {
    semget($_, 3, 01600) // die "semget: $!";
    shmget($_, 9000, 01600) // die "shmget: $!";
    msgget($_, 01600) // die "msgget: $!";
}
