/*
 * steal SELF OWNER PORT SIZE REF...: tries to attach a pool that was not granted to this domain,
 * with all that its owner told another one. Prints why it can't. What `vshmem xen join` does,
 * without its permission to read what to do.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "vshmem_xen_ioctl.h"

int main(int argc, char **argv) {
    struct vshmem_xen_attach how = {.name = "stolen"};
    int control = open("/dev/vshmem-xen-control", O_RDWR);

    if (control < 0 || argc < 6) {
        perror("steal");
        return 2;
    }
    how.self = strtoul(argv[1], NULL, 10);
    how.owner = strtoul(argv[2], NULL, 10);
    how.port = strtoul(argv[3], NULL, 10);
    how.size = strtoull(argv[4], NULL, 10);
    for (int i = 5; i < argc && how.count < VSHMEM_XEN_LISTS; i++)
        how.refs[how.count++] = strtoul(argv[i], NULL, 10);
    if (ioctl(control, VSHMEM_XEN_ATTACH, &how) == 0) {
        puts("stolen");
        return 1;
    }
    puts(strerror(errno));
    return 0;
}
