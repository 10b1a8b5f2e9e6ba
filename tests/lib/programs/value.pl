# value.pl KEY: prints what a semaphore is.
print semctl(semget(hex shift, 1, 0) // die("semget: $!"), 0, 12, 0) + 0;
