/* Shared memory segments, as shmop(2) and shmctl(2) describe them. */
#include "tests.h"
#include <linux/capability.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>

static int new_segment(size_t size) { return (int)OK(shmget(IPC_PRIVATE, size, 0600)); }

static void remove_segment(int id) { OK(shmctl(id, IPC_RMID, NULL)); }

static char *attach(int id) {
    char *start = shmat(id, NULL, 0);
    OK((long)start);
    return start;
}

static struct shmid_ds state(int id) {
    struct shmid_ds ds;
    OK(shmctl(id, IPC_STAT, &ds));
    return ds;
}

static int is_zero(const char *start, size_t size) {
    for (size_t i = 0; i < size; i++)
        if (start[i] != 0)
            return 0;
    return 1;
}

static void reports_limits(void) {
    struct shminfo limits;
    struct shm_info used;
    OK(shmctl(0, IPC_INFO, (struct shmid_ds *)&limits));
    CHECK(limits.shmmax > 0 && limits.shmmni > 0 && limits.shmall > 0);
    EQUAL(limits.shmmin, 1);
    int id = new_segment(10000);
    OK(shmctl(0, SHM_INFO, (struct shmid_ds *)&used));
    EQUAL(used.used_ids, 1);
    EQUAL(used.shm_tot, 3);
    remove_segment(id);
}

static void keeps_limits(void) {
    struct shminfo limits;
    OK(shmctl(0, IPC_INFO, (struct shmid_ds *)&limits));
    FAILS(shmget(IPC_PRIVATE, 0, 0600), EINVAL);
    FAILS(shmget(IPC_PRIVATE, limits.shmmax + 1, 0600), EINVAL);
    FAILS(shmget(IPC_PRIVATE, (size_t)-1, 0600), EINVAL);
}

static void as_many_segments_as_allowed_and_no_more(void) {
    struct shminfo limits;
    OK(shmctl(0, IPC_INFO, (struct shmid_ds *)&limits));
    if (limits.shmmni > 10000)
        skip("more segments are allowed here than are quickly made");
    int *ids = calloc(limits.shmmni, sizeof *ids);
    for (size_t i = 0; i < limits.shmmni; i++)
        ids[i] = new_segment(1);
    FAILS(shmget(IPC_PRIVATE, 1, 0600), ENOSPC);
    remove_segment(ids[7]);
    ids[7] = new_segment(1);
    for (size_t i = 0; i < limits.shmmni; i++)
        remove_segment(ids[i]);
    free(ids);
}

static void a_new_segment_is_zero_also_where_an_old_one_was(void) {
    enum { SIZE = 300000 };
    for (int round = 0; round < 30; round++) {
        int id = new_segment(SIZE);
        char *start = attach(id);
        CHECK(is_zero(start, SIZE));
        memset(start, 0xa5, SIZE);
        remove_segment(id);
        OK(shmdt(start));
    }
}

static void a_large_segment_can_be_used_at_both_ends(void) {
    size_t size = 200UL << 20;
    int id = (int)shmget(IPC_PRIVATE, size, 0600);
    if (id == -1 && (errno == ENOMEM || errno == ENOSPC))
        skip("no room for 200 MiB");
    OK(id);
    char *start = attach(id);
    CHECK(start[0] == 0 && start[size / 2] == 0 && start[size - 1] == 0);
    start[0] = 1;
    start[size - 1] = 2;
    OK(shmdt(start));
    start = attach(id);
    CHECK(start[0] == 1 && start[size - 1] == 2);
    EQUAL(state(id).shm_segsz, size);
    OK(shmdt(start));
    remove_segment(id);
}

static void writes_through_inherited(void *start) {
    char *bytes = *(char **)start;
    CHECK(bytes[0] == 'p');
    bytes[1] = 'c';
    OK(shmdt(bytes));
}

static void attachments_are_inherited(void) {
    int id = new_segment(4096);
    char *start = attach(id);
    start[0] = 'p';
    joined(child(writes_through_inherited, &start), 0);
    CHECK(start[1] == 'c');
    EQUAL(state(id).shm_nattch, 1);
    OK(shmdt(start));
    remove_segment(id);
}

static void keeps_until_killed(void *id) {
    char *start = attach(*(int *)id);
    start[0]++;
    pause();
}

static void the_killed_are_subtracted(void) {
    enum { COUNT = 5 };
    int id = new_segment(4096);
    volatile char *start = attach(id);
    pid_t pids[COUNT];
    for (int i = 0; i < COUNT; i++) {
        pids[i] = child(keeps_until_killed, &id);
        while (start[0] != i + 1)
            nap_ms(1);
    }
    /* Each child inherited one attachment and made one. */
    EQUAL(state(id).shm_nattch, 1 + 2 * COUNT);
    for (int i = 0; i < COUNT; i++) {
        killed(pids[i]);
        EQUAL(state(id).shm_nattch, 1 + 2 * (COUNT - 1 - i));
    }
    remove_segment(id);
    OK(shmdt((const void *)start));
    struct shmid_ds ds;
    FAILS(shmctl(id, IPC_STAT, &ds), EINVAL);
}

static void a_removed_segment_goes_with_its_last_user(void) {
    int id = new_segment(4096);
    char *start = attach(id);
    remove_segment(id);
    CHECK(state(id).shm_perm.mode & SHM_DEST);
    char *again = attach(id);
    again[5] = 9;
    CHECK(start[5] == 9);
    OK(shmdt(start));
    OK(shmdt(again));
    FAILS(shmat(id, NULL, 0), EINVAL);
}

/* What the pool's memory is mapped in multiples of: pages, unless the environment says otherwise.
 */
static size_t unit(void) {
    const char *large = getenv("SHMLBA");
    return large ? strtoul(large, NULL, 0) : 4096;
}

static void attaches_where_asked(void) {
    size_t size = 3 * unit();
    int id = new_segment(size);
    char *free_range = mmap(NULL, 5 * size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(free_range != MAP_FAILED);
    free_range += -(uintptr_t)free_range % unit();
    FAILS(shmat(id, free_range, 0), EINVAL); /* taken */
    EQUAL((long)shmat(id, free_range, SHM_REMAP), (long)free_range);
    free_range[0] = 3;
    OK(shmdt(free_range));
    OK(munmap(free_range + size, 3 * size));
    EQUAL((long)shmat(id, free_range, 0), (long)free_range);
    CHECK(free_range[0] == 3);
    FAILS(shmat(id, free_range + size + 1, 0), EINVAL);
    EQUAL((long)shmat(id, free_range + size + unit() - 1, SHM_RND), (long)(free_range + size));
    FAILS(shmdt(free_range + unit()), EINVAL);
    OK(shmdt(free_range));
    FAILS(shmdt(free_range), EINVAL);
    OK(shmdt(free_range + size));
    remove_segment(id);
}

static sig_atomic_t faulted;

static void note_fault(int number) {
    (void)number;
    faulted = 1;
    _exit(3);
}

static void writes_read_only(void *id) {
    handle(SIGSEGV, note_fault);
    char *start = shmat(*(int *)id, NULL, SHM_RDONLY);
    OK((long)start);
    CHECK(start[0] == 0);
    FAILS(mprotect(start, 4096, PROT_READ | PROT_WRITE), EACCES);
    *(volatile char *)start = 1;
}

static void a_read_only_attachment_faults_on_write(void) {
    int id = new_segment(4096);
    joined(child(writes_read_only, &id), 3);
    EQUAL(state(id).shm_nattch, 0);
    remove_segment(id);
}

static void refuses_bad_addresses(void) {
    int id = new_segment(4096);
    void *bad = (void *)8;
    FAILS(shmctl(id, IPC_STAT, bad), EFAULT);
    FAILS(shmctl(id, IPC_SET, bad), EFAULT);
    FAILS(shmctl(0, SHM_INFO, bad), EFAULT);
    FAILS(shmdt((void *)4096), EINVAL);
    FAILS(shmdt(NULL), EINVAL);
    FAILS(shmdt(&id), EINVAL);
    remove_segment(id);
}

static void many_attachments_of_many_segments(void) {
    enum { SEGMENTS = 100, TIMES = 5 };
    int ids[SEGMENTS];
    char *starts[SEGMENTS][TIMES];
    for (int i = 0; i < SEGMENTS; i++) {
        ids[i] = new_segment(4096 * (size_t)(1 + i % 3));
        for (int j = 0; j < TIMES; j++)
            starts[i][j] = attach(ids[i]);
        starts[i][i % TIMES][i] = (char)(i + 1);
    }
    for (int i = 0; i < SEGMENTS; i++) {
        EQUAL(state(ids[i]).shm_nattch, TIMES);
        for (int j = 0; j < TIMES; j++) {
            CHECK(starts[i][j][i] == (char)(i + 1));
            OK(shmdt(starts[i][j]));
        }
        remove_segment(ids[i]);
    }
}

static void notes_times_and_pids(void) {
    time_t before = time(NULL) - 1;
    int id = new_segment(100);
    struct shmid_ds ds = state(id);
    EQUAL(ds.shm_atime, 0);
    EQUAL(ds.shm_dtime, 0);
    EQUAL(ds.shm_segsz, 100);
    EQUAL(ds.shm_cpid, getpid());
    EQUAL(ds.shm_lpid, 0);
    char *start = attach(id);
    ds = state(id);
    CHECK(ds.shm_atime >= before && ds.shm_atime <= time(NULL));
    EQUAL(ds.shm_lpid, getpid());
    OK(shmdt(start));
    CHECK(state(id).shm_dtime >= before);
    remove_segment(id);
}

/* An id's low bits are its index, so an id does, too. */
static void is_listed_by_its_id(void) {
    struct shmid_ds ds;
    const int first = (int)OK(shmget(IPC_PRIVATE, 100, 0600)),
              id = (int)OK(shmget(IPC_PRIVATE, 100, 0600));
    EQUAL(shmctl(id, SHM_STAT, &ds), id);
    EQUAL(shmctl(id, SHM_STAT_ANY, &ds), id);
    EQUAL(shmctl(first, SHM_STAT, &ds), first);
    FAILS(shmctl(-1, SHM_STAT, &ds), EINVAL);
    OK(shmctl(id, IPC_RMID, NULL));
    FAILS(shmctl(id, SHM_STAT, &ds), EINVAL);
    OK(shmctl(first, IPC_RMID, NULL));
}

/* Down to zero, where only those may map something who may bypass vm.mmap_min_addr. */
static void rounds_to_zero(void *can_attach) {
    int id = new_segment(4096);
    void *first = (void *)1, *last = (void *)(unit() - 1);
    FAILS(shmat(id, first, 0), EINVAL);
    FAILS(shmat(id, first, SHM_RND | SHM_REMAP), EINVAL);
    if (*(int *)can_attach) {
        EQUAL((long)shmat(id, first, SHM_RND), 0);
        EQUAL(state(id).shm_nattch, 1);
        FAILS(shmdt(first), EINVAL);
        OK(shmdt(NULL));
        EQUAL(state(id).shm_nattch, 0);
    } else {
        FAILS(shmat(id, first, SHM_RND), EPERM);
        FAILS(shmat(id, last, SHM_RND), EPERM);
    }
    FAILS(shmdt(NULL), EINVAL);
    remove_segment(id);
}

/* As one without CAP_SYS_RAWIO. */
static void rounds_to_zero_in_vain(void *unused) {
    (void)unused;
    struct __user_cap_header_struct whose = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct set[2];
    OK(syscall(SYS_capget, &whose, set));
    set[0].effective &= ~(1u << CAP_SYS_RAWIO);
    OK(syscall(SYS_capset, &whose, set));
    int no = 0;
    rounds_to_zero(&no);
}

static void an_address_in_the_first_page_is_zero(void) {
    const int how = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    void *zero = mmap(NULL, 4096, PROT_NONE, how, -1, 0);
    int can_attach = zero != MAP_FAILED;
    if (can_attach)
        OK(munmap(zero, 4096));
    rounds_to_zero(&can_attach);
    joined(child(rounds_to_zero_in_vain, NULL), 0);
}

/* The bit by which other processors' kernels tell the structures' versions apart (IPC_64). */
static void refuses_commands_with_a_bit_too_many(void) {
    struct shmid_ds ds;
    const int id = (int)OK(shmget(IPC_PRIVATE, 100, 0600));
    FAILS(shmctl(id, IPC_STAT | 0x100, &ds), EINVAL);
    FAILS(shmctl(id, SHM_STAT | 0x100, &ds), EINVAL);
    FAILS(shmctl(id, IPC_INFO | 0x100, &ds), EINVAL);
    FAILS(shmctl(id, IPC_RMID | 0x100, NULL), EINVAL);
    OK(shmctl(id, IPC_RMID, NULL));
}

TESTS({"shm/reports_limits", reports_limits}, {"shm/keeps_limits", keeps_limits},
      {"shm/as_many_segments_as_allowed_and_no_more", as_many_segments_as_allowed_and_no_more},
      {"shm/a_new_segment_is_zero_also_where_an_old_one_was",
       a_new_segment_is_zero_also_where_an_old_one_was},
      {"shm/a_large_segment_can_be_used_at_both_ends", a_large_segment_can_be_used_at_both_ends},
      {"shm/attachments_are_inherited", attachments_are_inherited},
      {"shm/the_killed_are_subtracted", the_killed_are_subtracted},
      {"shm/a_removed_segment_goes_with_its_last_user", a_removed_segment_goes_with_its_last_user},
      {"shm/attaches_where_asked", attaches_where_asked},
      {"shm/a_read_only_attachment_faults_on_write", a_read_only_attachment_faults_on_write},
      {"shm/refuses_bad_addresses", refuses_bad_addresses},
      {"shm/many_attachments_of_many_segments", many_attachments_of_many_segments},
      {"shm/notes_times_and_pids", notes_times_and_pids},
      {"shm/is_listed_by_its_id", is_listed_by_its_id},
      {"shm/an_address_in_the_first_page_is_zero", an_address_in_the_first_page_is_zero},
      {"shm/refuses_commands_with_a_bit_too_many", refuses_commands_with_a_bit_too_many})
