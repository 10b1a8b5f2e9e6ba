/* The price of being woken by another machine: the same command is started twice, in two machines.
 *
 *   wakeup [-k KEY] [-t SECONDS] [-n TIMES] METHOD...
 *
 * METHOD is
 *   bell   both sides wait for a word and ring by vshmem.ko itself: the floor
 *   woken  two semaphores
 *
 * Each side sleeps before it is woken: the other one first holds its answer back for a while, and
 * what it held back is taken off. The methods take turns every few dozen rounds, so that what else
 * the host does hits all alike. The process that makes the semaphores leads: it measures, prints
 * "METHOD 8 NANOSECONDS 1" for each, the median time there and back in SECONDS, and removes
 * everything. That is done TIMES times. Under the interposer, in machines that have the driver;
 * elsewhere it ends with status 3.
 */
#define _GNU_SOURCE
#include "bench.h"
#include "vshmem_ioctl.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <time.h>
#include <unistd.h>

enum { THERE, BACK, SEMAPHORES };
enum { NO_DRIVER = 3 };
enum { METHODS = 2 };
/* Rounds of one method before the next one's turn; the first few are not counted. */
enum { STRETCH = 40, WARM = 8 };

/* Longer than anybody spins. */
static const struct timespec hold = {.tv_nsec = 1500000};

/* Words that are waited for, and what the two tell each other. */
struct segment {
    _Alignas(128) atomic_uint turn[2]; /* by way: the number of the round */
    _Alignas(128) atomic_uint last;
    _Atomic uint64_t held; /* by the follower, in the round */
    atomic_int peer[2];    /* by way: who is rung */
};

struct game {
    key_t key;
    int leads, semaphores, memory;
    int methods, times;
    const char *method[METHODS];
    struct segment *segment;
    int device;
    uint64_t offset; /* of the segment in the pool */
    unsigned number; /* of the round; both sides count, and never back: a word must not */
    void (*give)(struct game *, int way);
    void (*take)(struct game *, int way);
};

static void give_semaphore(struct game *g, int way) { sem_add(g->semaphores, way, 1, 0); }
static void take_semaphore(struct game *g, int way) { sem_add(g->semaphores, way, -1, 0); }

static void give_bell(struct game *g, int way) {
    struct vshmem_ring ring = {.peer = (unsigned)g->segment->peer[way]};
    atomic_store(&g->segment->turn[way], g->number);
    if (ioctl(g->device, VSHMEM_RING, &ring) != 0)
        die("VSHMEM_RING");
}

static void take_bell(struct game *g, int way) {
    atomic_uint *word = &g->segment->turn[way];
    uint64_t offset = g->offset + (uint64_t)((char *)word - (char *)g->segment);
    struct vshmem_wait wait = {
        .offset = offset, .expected = g->number - 1, .deadline = VSHMEM_FOREVER};
    while (atomic_load(word) != g->number)
        if (ioctl(g->device, VSHMEM_WAIT, &wait) != 0 && errno != EAGAIN && errno != EINTR)
            die("VSHMEM_WAIT");
}

static void choose(struct game *g, const char *method) {
    int bell = strcmp(method, "bell") == 0;
    g->give = bell ? give_bell : give_semaphore;
    g->take = bell ? take_bell : take_semaphore;
}

/* Time there and back without what the follower held back. */
static double lead_round(struct game *g) {
    g->number++;
    nanosleep(&hold, NULL); /* the follower falls asleep */
    uint64_t before = now_ns();
    g->give(g, THERE);
    g->take(g, BACK);
    return (double)(now_ns() - before - atomic_load(&g->segment->held));
}

/* Returns whether this was the last round, which is known before the leader goes on. */
static int follow_round(struct game *g) {
    g->number++;
    g->take(g, THERE);
    uint64_t before = now_ns();
    int last = (int)atomic_load(&g->segment->last);
    nanosleep(&hold, NULL); /* the leader falls asleep */
    atomic_store(&g->segment->held, now_ns() - before);
    g->give(g, BACK);
    return last;
}

/* What was measured of a method. */
struct measured {
    double sample[1 << 16];
    size_t count;
};

static struct measured measured[METHODS];

static void lead_stretch(struct game *g, struct measured *m, int last) {
    for (int i = 0; i < STRETCH; i++) {
        if (i == STRETCH - 1 && last)
            atomic_store(&g->segment->last, 1);
        double ns = lead_round(g);
        if (i >= WARM && m->count < sizeof m->sample / sizeof *m->sample)
            m->sample[m->count++] = ns;
    }
}

/* All methods in turn until the time is up, which is told with the last round of all. */
static void lead(struct game *g) {
    for (int time = 0; time < g->times; time++) {
        uint64_t end = now_ns() + (uint64_t)(bench_seconds * 1e9);
        int over = 0;
        while (!over) {
            over = now_ns() >= end;
            for (int i = 0; i < g->methods; i++) {
                choose(g, g->method[i]);
                int last = over && time == g->times - 1 && i == g->methods - 1;
                lead_stretch(g, &measured[i], last);
            }
        }
        for (int i = 0; i < g->methods; i++) {
            printf("%s 8 %.0f 1\n", g->method[i], median(measured[i].sample, measured[i].count));
            measured[i].count = 0;
        }
        fflush(stdout);
    }
}

static void follow(struct game *g) {
    for (int last = 0, i = 0; !last; i = (i + 1) % g->methods) {
        choose(g, g->method[i]);
        for (int round = 0; round < STRETCH; round++)
            last = follow_round(g);
    }
}

static void no_driver(const char *why) {
    fprintf(stderr, "wakeup: %s: vshmem.ko is needed, and the interposer\n", why);
    exit(NO_DRIVER);
}

/* The segment is a mapping of the device's file; where it lies in the pool says /proc. */
static void find_device(struct game *g) {
    unsigned long begin, end, offset, here = (unsigned long)g->segment;
    char line[512], path[256] = "";
    FILE *maps = fopen("/proc/self/maps", "r");
    if (maps == NULL)
        die("/proc/self/maps");
    while (fgets(line, sizeof line, maps) != NULL) {
        char found[256] = "";
        sscanf(line, "%lx-%lx %*s %lx %*s %*s %255s", &begin, &end, &offset, found);
        if (begin <= here && here < end) {
            g->offset = offset + (here - begin);
            strcpy(path, found);
        }
    }
    fclose(maps);
    if (strncmp(path, "/dev/vshmem", 11) != 0)
        no_driver("the segment is not in a device's memory");
    struct vshmem_info info;
    g->device = open(path, O_RDWR | O_CLOEXEC);
    if (g->device < 0 || ioctl(g->device, VSHMEM_INFO, &info) != 0)
        die(path);
    if (info.member < 0)
        no_driver("the device has no doorbell");
    /* Who leads is rung on the way back. */
    atomic_store(&g->segment->peer[g->leads ? BACK : THERE], info.member);
}

static int get_memory(const struct game *g, int flags) {
    for (int attempt = 0; attempt < 2000; attempt++) {
        int id = shmget(g->key, sizeof *g->segment, flags);
        if (id >= 0 || errno != ENOENT)
            return id;
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
    return -1;
}

static void set_up(struct game *g) {
    g->semaphores = semget(g->key, SEMAPHORES, IPC_CREAT | IPC_EXCL | 0666);
    g->leads = g->semaphores >= 0;
    if (!g->leads && errno == EEXIST)
        g->semaphores = semget(g->key, SEMAPHORES, 0);
    if (g->semaphores < 0)
        die("semget");
    g->memory = get_memory(g, g->leads ? IPC_CREAT | IPC_EXCL | 0666 : 0);
    g->segment = g->memory < 0 ? (void *)-1 : shmat(g->memory, NULL, 0);
    if (g->segment == (void *)-1)
        die("the segment");
}

/* Root measures as the ordinary user that programs are run by: both the pool and its device are
 * open by now. */
static void become_ordinary(struct game *g) {
    const uid_t user = 65534;
    if (geteuid() != 0)
        return;
    if (g->leads) {
        struct semid_ds set = {.sem_perm = {.uid = user, .gid = user, .mode = 0666}};
        struct shmid_ds segment = {.shm_perm = {.uid = user, .gid = user, .mode = 0666}};
        if (semctl(g->semaphores, 0, IPC_SET, &set) != 0 ||
            shmctl(g->memory, IPC_SET, &segment) != 0)
            die("IPC_SET");
    }
    if (setgroups(0, NULL) != 0 || setresgid(user, user, user) != 0 ||
        setresuid(user, user, user) != 0)
        die("becoming an ordinary user");
}

/* The leader removes everything, once the other one needs nothing any more. */
static void tear_down(struct game *g) {
    if (!g->leads) {
        give_semaphore(g, BACK);
        return;
    }
    take_semaphore(g, BACK);
    remove_semaphores(g->semaphores);
    if (shmctl(g->memory, IPC_RMID, NULL) != 0)
        die("shmctl IPC_RMID");
}

/* Takes the methods from the command line. */
static int set_methods(struct game *g, char **names) {
    for (; *names != NULL; names++) {
        int known = strcmp(*names, "bell") == 0 || strcmp(*names, "woken") == 0;
        if (!known || g->methods == METHODS) {
            fprintf(stderr, "wakeup: %s: up to %d methods, bell or woken\n", *names, METHODS);
            return 0;
        }
        g->method[g->methods++] = *names;
    }
    return g->methods > 0;
}

int main(int argc, char **argv) {
    struct game game = {.key = 0x57414b45, .times = 1};
    int option;
    while ((option = getopt(argc, argv, "k:t:n:")) != -1) {
        if (option == 'k')
            game.key = (key_t)strtoul(optarg, NULL, 0);
        else if (option == 't')
            bench_seconds = atof(optarg);
        else if (option == 'n')
            game.times = atoi(optarg);
        else
            return 2;
    }
    if (!set_methods(&game, argv + optind) || game.times < 1)
        return 2;
    set_up(&game);
    find_device(&game);
    become_ordinary(&game);
    /* Who leads knows the other one's number from here on. */
    give_semaphore(&game, game.leads ? THERE : BACK);
    take_semaphore(&game, game.leads ? BACK : THERE);
    if (game.leads)
        lead(&game);
    else
        follow(&game);
    tear_down(&game);
    return 0;
}
