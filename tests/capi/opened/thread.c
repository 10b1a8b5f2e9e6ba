/* A library that opens a file in a thread, for which it waits while it is loaded. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static void *look(void *nothing) {
    close(open("/dev/null", O_RDONLY));
    close(openat(AT_FDCWD, "/dev/null", O_RDONLY));
    FILE *file = fopen("/dev/null", "re");
    if (file)
        fclose(file);
    return nothing;
}

__attribute__((constructor)) static void loaded(void) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, look, NULL) == 0)
        pthread_join(thread, NULL);
}
