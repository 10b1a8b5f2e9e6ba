/*
 * forge GUEST SIZE [POOL]: grants a pool to another domain that is none. Prints its announcement,
 * "SIZE PORT REF", and goes on until it is ended. It has fewer pages than it says, some of which
 * come again and again. Without POOL they are empty. Else it begins with what is in that pool of
 * this domain, and while the others use it, words of it and the list of its pages change all the
 * time.
 *
 * What root of a domain can do by Linux's own drivers, xen-gntalloc and xen-evtchn.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* Which the headers lack. */
typedef uint16_t domid_t;
#include <xen/evtchn.h>
#include <xen/gntalloc.h>

#define PAGE 4096
#define REFS_A_PAGE (PAGE / sizeof(uint32_t))

static void fail(const char *what) {
    perror(what);
    exit(2);
}

/* Allocates pages, and lets the domain write to them. */
static void *granted(uint16_t guest, unsigned count, uint32_t *refs) {
    struct ioctl_gntalloc_alloc_gref *how = calloc(1, sizeof(*how) + count * sizeof(uint32_t));
    int device = open("/dev/xen/gntalloc", O_RDWR);
    void *pages;

    if (device < 0 || !how)
        fail("/dev/xen/gntalloc");
    how->domid = guest;
    how->flags = GNTALLOC_FLAG_WRITABLE;
    how->count = count;
    if (ioctl(device, IOCTL_GNTALLOC_ALLOC_GREF, how) < 0)
        fail("IOCTL_GNTALLOC_ALLOC_GREF");
    memcpy(refs, how->gref_ids, count * sizeof(*refs));
    pages =
        mmap(NULL, (size_t)count * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, device, how->index);
    if (pages == MAP_FAILED)
        fail("the pages");
    free(how);
    return pages;
}

/* An event channel that the domain may bind. The file stays open. */
static int channel(uint16_t guest) {
    struct ioctl_evtchn_bind_unbound_port how = {.remote_domain = guest};
    int device = open("/dev/xen/evtchn", O_RDWR);
    int port = device < 0 ? -1 : ioctl(device, IOCTL_EVTCHN_BIND_UNBOUND_PORT, &how);

    if (port < 0)
        fail("/dev/xen/evtchn");
    return port;
}

/* Begins as the pool of this name begins. */
static void copy(const char *pool, void *to, size_t size) {
    char path[128];
    void *from;
    int file;

    snprintf(path, sizeof(path), "/dev/vshmem-xen/%s", pool);
    file = open(path, O_RDWR);
    from = file < 0 ? MAP_FAILED : mmap(NULL, size, PROT_READ, MAP_SHARED, file, 0);
    if (from == MAP_FAILED)
        fail(path);
    memcpy(to, from, size);
    munmap(from, size);
    close(file);
}

/* Changes words: most of them a little, as indices and states are changed. */
static void scribble(uint32_t *words, size_t count, uint32_t *list, size_t pages) {
    const uint32_t bad[] = {0, 1, 0x7fffffff, 0x80000000, 0xffffffff};
    const struct timespec pause = {.tv_nsec = 20000000};
    size_t at = 0;
    uint32_t good = list[0];

    for (unsigned turn = 1;; turn++) {
        for (int i = 0; i < 50; i++) {
            uint32_t *word = &words[(size_t)random() % count];
            uint32_t how = random() % 16;

            *word = how < 11 ? *word + how - 5 : bad[how - 11];
        }
        nanosleep(&pause, NULL);
        /* For half a second of five there is no such page. */
        if (turn % 250 == 225) {
            at = random() % pages;
            good = list[at];
            list[at] = random();
        } else if (turn % 250 == 0) {
            list[at] = good;
        }
    }
}

int main(int argc, char **argv) {
    uint16_t guest = argc > 2 ? strtoul(argv[1], NULL, 10) : 0;
    size_t size = argc > 2 ? strtoul(argv[2], NULL, 10) : 0, pages = size / PAGE;
    /* Xen maps a page 255 times at the most. */
    unsigned own = argc > 3 ? pages * 3 / 4 : pages / 128;
    uint32_t refs[REFS_A_PAGE], list_ref, *list;
    void *memory;

    if (argc < 3 || own == 0 || pages > REFS_A_PAGE) {
        fprintf(stderr, "usage: forge GUEST SIZE [POOL]\n");
        return 2;
    }
    memory = granted(guest, own, refs);
    list = granted(guest, 1, &list_ref);
    for (size_t i = 0; i < pages; i++)
        list[i] = refs[i % own];
    if (argc > 3)
        copy(argv[3], memory, (size_t)own * PAGE);
    printf("%zu %d %u\n", size, channel(guest), list_ref);
    fflush(stdout);
    if (argc > 3)
        scribble(memory, (size_t)own * REFS_A_PAGE, list, pages);
    for (;;)
        pause();
}
