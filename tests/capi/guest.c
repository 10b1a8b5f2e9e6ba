/* The library is a good guest: descriptors, directories, errno, output, and memory that isn't
 * there. */
#include "capi.h"
#include <dirent.h>
#include <sys/resource.h>

static int set, queue, segment;

static int lowest_free(void) {
    int fd = open("/dev/null", O_RDONLY);
    CHECK(fd >= 0 && close(fd) == 0);
    return fd;
}

static void use_everything(void) {
    struct message m = {1, "text"};
    struct semid_ds ds;
    GIVES(semop(set, OP(0, 1, SEM_UNDO), 1), 0);
    GIVES(semop(set, OP(0, -1, SEM_UNDO), 1), 0);
    GIVES(msgsnd(queue, &m, 5, 0), 0);
    GIVES(msgrcv(queue, &m, 64, 0, 0), 5);
    GIVES(semctl(set, 0, IPC_STAT, &ds), 0);
    char *p = shmat(segment, NULL, 0);
    CHECK(p != (void *)-1);
    p[4095]++;
    GIVES(shmdt(p), 0);
    int private = shmget(IPC_PRIVATE, 1 << 20, 0600);
    CHECK(private >= 0);
    char *q = shmat(private, NULL, 0);
    CHECK(q != (void *)-1);
    for (int i = 0; i < 1 << 20; i += 4096) {
        CHECK(q[i] == 0);
        q[i] = 1;
    }
    GIVES(shmctl(private, IPC_RMID, NULL), 0);
    GIVES(shmdt(q), 0);
}

static void takes_no_low_descriptor(void) {
    int before = lowest_free();
    char open_before[256];
    for (int fd = 0; fd < 256; fd++)
        open_before[fd] = fcntl(fd, F_GETFD) != -1;
    set = semget(IPC_PRIVATE, 2, 0600);
    queue = msgget(IPC_PRIVATE, 0600);
    segment = shmget(IPC_PRIVATE, 4096, 0600);
    CHECK(set >= 0 && queue >= 0 && segment >= 0);
    use_everything();
    CHECK(lowest_free() == before);
    for (int fd = 0; fd < 256; fd++)
        CHECK(open_before[fd] == (fcntl(fd, F_GETFD) != -1));
}

/* A child in which something drastic happens goes on as if nothing had. */
static void in_child(void (*drastic)(void)) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        drastic();
        use_everything();
        pid_t grandchild = fork();
        if (grandchild == 0) {
            use_everything();
            _exit(0);
        }
        wait_for_success(grandchild);
        exit(0);
    }
    wait_for_success(child);
    GIVES(semctl(set, 0, GETVAL, 0), 0);
}

static void close_everything(void) { CHECK(syscall(SYS_close_range, 3, ~0U, 0) == 0); }

static void close_even_standard(void) { CHECK(syscall(SYS_close_range, 0, ~0U, 0) == 0); }

static void replace_everything(void) {
    CHECK(syscall(SYS_close_range, 3, ~0U, 0) == 0);
    for (int i = 0; i < 1024; i++)
        if (open("/dev/null", O_RDWR) < 0)
            break;
    CHECK(syscall(SYS_close_range, 8, 100, 0) == 0);
}

/* Whoever has the pool keeps it. */
static void remove_pool(void) { CHECK(unlink(getenv("VSHMEM_POOL")) == 0); }

static void change_directory(void) { CHECK(chdir("/proc") == 0); }

static void allow_no_descriptors(void) {
    struct rlimit few = {0, 0};
    CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
}

/* A process that can't reach its files any more goes on, but has no children that are known. */
static void change_root(void) {
    if (chroot("/proc/self/fdinfo") != 0)
        _exit(0);
    CHECK(chdir("/") == 0);
    use_everything();
}

static void after_chroot(void) {
    pid_t child = fork();
    if (child == 0) {
        change_root();
        CHECK(syscall(SYS_close_range, 3, ~0U, 0) == 0);
        use_everything();
        exit(0);
    }
    wait_for_success(child);
    GIVES(semctl(set, 0, GETVAL, 0), 0);
}

static void writes_nothing(void) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], 1);
        dup2(ends[1], 2);
        use_everything();
        semop(set, (struct sembuf *)8, 1);
        semget(5, -1, IPC_CREAT);
        _exit(0);
    }
    close(ends[1]);
    char c;
    CHECK(read(ends[0], &c, 1) == 0);
    close(ends[0]);
    wait_for_success(child);
}

/* Addresses at the edge of what is mapped. */
static void faults(void) {
    long page = sysconf(_SC_PAGESIZE);
    char *two = mmap(NULL, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(two != MAP_FAILED && munmap(two + 2 * page, page) == 0);
    char *end = two + 2 * page;

    GIVES(semop(set, (struct sembuf *)(end - 6), 1), 0);
    FAILS(semop(set, (struct sembuf *)(end - 4), 1), EFAULT);
    FAILS(semop(set, (struct sembuf *)(end - 6), 2), EFAULT);
    FAILS(semop(set, (struct sembuf *)0x8000000000000000, 1), EFAULT);
    FAILS(semop(set, (struct sembuf *)-8, 1), EFAULT);

    long *type = (long *)(end - 16);
    *type = 3;
    GIVES(msgsnd(queue, type, 8, 0), 0);
    FAILS(msgsnd(queue, type, 9, 0), EFAULT);
    FAILS(msgsnd(queue, end - 4, 0, 0), EFAULT);
    /* Room that is not all there does, if the message is short enough. */
    GIVES(msgrcv(queue, type, 4000, 0, 0), 8);
    CHECK(*type == 3);
    *(long *)two = 0;
    FAILS(msgsnd(queue, two, 0, 0), EINVAL);
    *(long *)two = 4;
    GIVES(msgsnd(queue, two, 100, 0), 0);
    FAILS(msgrcv(queue, type, 100, 0, 0), EFAULT);
    FAILS(msgrcv(queue, two, 100, 0, IPC_NOWAIT), ENOMSG);

    /* Memory that may only be read. */
    *(long *)two = 4;
    CHECK(msgsnd(queue, two, 8, 0) == 0);
    char *fixed = mmap(NULL, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    FAILS(semctl(set, 0, IPC_STAT, (struct semid_ds *)fixed), EFAULT);
    FAILS(semctl(set, 0, GETALL, (unsigned short *)fixed), EFAULT);
    GIVES(semctl(set, 0, SETALL, (unsigned short *)fixed), 0);
    FAILS(msgrcv(queue, fixed, 64, 0, 0), EFAULT);
    GIVES(semop(set, (struct sembuf *)fixed, 1), 0);
    /* Across the edge. */
    FAILS(semctl(set, 0, GETALL, (unsigned short *)(end - 2)), EFAULT);
    FAILS(semctl(set, 0, IPC_STAT, (struct semid_ds *)(end - 50)), EFAULT);
    CHECK(munmap(two, 2 * page) == 0 && munmap(fixed, page) == 0);
}

int main(void) {
    takes_no_low_descriptor();
    in_child(change_directory);
    in_child(close_everything);
    in_child(close_even_standard);
    in_child(replace_everything);
    in_child(allow_no_descriptors);
    after_chroot();
    writes_nothing();
    faults();
    in_child(remove_pool);
    return 0;
}
