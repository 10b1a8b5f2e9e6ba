/*
 * peek OWNER REF: maps a page that another domain has granted, by Linux's own driver, and prints
 * the 32-bit numbers that it begins with. Or says why it can't, and exits with 1.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

/* Which the header lacks. */
typedef uint32_t grant_ref_t;
typedef uint16_t domid_t;
#include <xen/gntdev.h>

int main(int argc, char **argv) {
    struct ioctl_gntdev_map_grant_ref how = {.count = 1};
    const volatile uint32_t *page;
    int device = open("/dev/xen/gntdev", O_RDWR);

    if (device < 0 || argc != 3) {
        perror("peek");
        return 2;
    }
    how.refs[0].domid = strtoul(argv[1], NULL, 10);
    how.refs[0].ref = strtoul(argv[2], NULL, 10);
    if (ioctl(device, IOCTL_GNTDEV_MAP_GRANT_REF, &how) < 0) {
        perror("IOCTL_GNTDEV_MAP_GRANT_REF");
        return 2;
    }
    page = mmap(NULL, getpagesize(), PROT_READ | PROT_WRITE, MAP_SHARED, device, how.index);
    if (page == MAP_FAILED) {
        printf("refused\n");
        return 1;
    }
    printf("%u %u %u\n", page[0], page[1], page[2]);
    return 0;
}
