/* The files of /proc that tell IPC objects and their limits, as ipcs(1) and programs read them:
 * they have what the *ctl calls say, by whichever function of libc they are opened. */
#include "tests.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>

enum { LINE = 512, MOST = 20 };

/* Reads a descriptor to its end, a few bytes at a time, and closes it. */
static char *whole(int fd) {
    size_t size = 1 << 20, used = 0;
    char *text = malloc(size);
    CHECK(text != NULL);
    for (ssize_t got; (got = OK(read(fd, text + used, 777))) > 0; used += (size_t)got)
        CHECK(used + 778 < size);
    text[used] = 0;
    OK(close(fd));
    return text;
}

static char *contents(const char *path) { return whole((int)OK(open(path, O_RDONLY))); }

/* The numbers of the line of an id; the third is octal. How many there are. */
static int line_of(const char *text, int id, long long *numbers) {
    CHECK(strchr(text, '\n') != NULL);
    for (const char *line = strchr(text, '\n') + 1; *line; line = strchr(line, '\n') + 1) {
        const char *end = strchr(line, '\n');
        CHECK(end != NULL);
        int count = 0;
        char copy[LINE], *rest = copy, *word;
        CHECK(end - line < LINE);
        memcpy(copy, line, (size_t)(end - line));
        copy[end - line] = 0;
        while ((word = strsep(&rest, " ")) != NULL)
            if (*word && count < MOST)
                numbers[count] = strtoll(word, NULL, count == 2 ? 8 : 10), count++;
        if (count > 1 && numbers[1] == id)
            return count;
    }
    return 0;
}

static void same_owner(const struct ipc_perm *perm, const long long *numbers) {
    EQUAL(numbers[0], perm->uid);
    EQUAL(numbers[1], perm->gid);
    EQUAL(numbers[2], perm->cuid);
    EQUAL(numbers[3], perm->cgid);
}

static void lists_segments(void) {
    int id = (int)OK(shmget(0x7153, 5000, IPC_CREAT | IPC_EXCL | 0640));
    void *at = shmat(id, NULL, 0);
    CHECK(at != (void *)-1);
    struct shmid_ds ds;
    OK(shmctl(id, IPC_STAT, &ds));
    long long n[MOST];
    char *text = contents("/proc/sysvipc/shm");
    const char head[] = "       key      shmid perms                  size  cpid  lpid nattch ";
    CHECK(strncmp(text, head, sizeof head - 1) == 0);
    EQUAL(line_of(text, id, n), 16);
    EQUAL(n[0], 0x7153);
    EQUAL(n[2], 0640);
    EQUAL(n[3], 5000);
    EQUAL(n[4], getpid());
    EQUAL(n[5], getpid());
    EQUAL(n[6], 1);
    same_owner(&ds.shm_perm, n + 7);
    EQUAL(n[11], ds.shm_atime);
    EQUAL(n[12], ds.shm_dtime);
    EQUAL(n[13], ds.shm_ctime);
    free(text);
    /* A removed one is there as long as it is attached. */
    OK(shmctl(id, IPC_RMID, NULL));
    text = contents("/proc/sysvipc/shm");
    EQUAL(line_of(text, id, n), 16);
    EQUAL(n[0], 0);
    EQUAL(n[2], SHM_DEST | 0640);
    free(text);
    OK(shmdt(at));
    text = contents("/proc/sysvipc/shm");
    EQUAL(line_of(text, id, n), 0);
    free(text);
}

static void lists_sets(void) {
    int id = (int)OK(semget(0x7154, 3, IPC_CREAT | IPC_EXCL | 0604));
    OK(semop(id, &(struct sembuf){.sem_num = 1, .sem_op = 1}, 1));
    struct semid_ds ds;
    OK(semctl(id, 0, IPC_STAT, (union semun){.buf = &ds}));
    long long n[MOST];
    char *text = contents("/proc/sysvipc/sem");
    EQUAL(line_of(text, id, n), 10);
    EQUAL(n[0], 0x7154);
    EQUAL(n[2], 0604);
    EQUAL(n[3], 3);
    same_owner(&ds.sem_perm, n + 4);
    EQUAL(n[8], ds.sem_otime);
    EQUAL(n[9], ds.sem_ctime);
    free(text);
    OK(semctl(id, 0, IPC_RMID));
    text = contents("/proc/sysvipc/sem");
    EQUAL(line_of(text, id, n), 0);
    free(text);
}

static void lists_queues(void) {
    int id = (int)OK(msgget(-0x7155, IPC_CREAT | IPC_EXCL | 0600));
    struct {
        long type;
        char text[40];
    } message = {1, "text"};
    for (int i = 0; i < 3; i++)
        OK(msgsnd(id, &message, sizeof message.text, 0));
    OK(msgrcv(id, &message, sizeof message.text, 0, 0));
    struct msqid_ds ds;
    OK(msgctl(id, IPC_STAT, &ds));
    long long n[MOST];
    char *text = contents("/proc/sysvipc/msg");
    EQUAL(line_of(text, id, n), 14);
    EQUAL(n[0], -0x7155);
    EQUAL(n[2], 0600);
    EQUAL(n[3], 80);
    EQUAL(n[4], 2);
    EQUAL(n[5], getpid());
    EQUAL(n[6], getpid());
    same_owner(&ds.msg_perm, n + 7);
    EQUAL(n[11], ds.msg_stime);
    EQUAL(n[12], ds.msg_rtime);
    EQUAL(n[13], ds.msg_ctime);
    free(text);
    OK(msgctl(id, IPC_RMID, NULL));
}

/* More lines than any buffer has room for. */
static void lists_many(void) {
    enum { MANY = 300 };
    int ids[MANY];
    for (int i = 0; i < MANY; i++)
        ids[i] = (int)OK(semget(IPC_PRIVATE, i + 1, 0600));
    char *text = contents("/proc/sysvipc/sem");
    for (int i = 0; i < MANY; i++) {
        long long n[MOST];
        EQUAL(line_of(text, ids[i], n), 10);
        EQUAL(n[3], i + 1);
        OK(semctl(ids[i], 0, IPC_RMID));
    }
    free(text);
}

static long long limit(const char *name) {
    char path[64];
    snprintf(path, sizeof path, "/proc/sys/kernel/%s", name);
    char *text = contents(path), *end;
    long long found = (long long)strtoull(text, &end, 10);
    CHECK(*end == '\n' && end[1] == 0);
    free(text);
    return found;
}

static void tells_limits(void) {
    struct shminfo shm;
    OK(shmctl(0, IPC_INFO, (struct shmid_ds *)&shm));
    EQUAL(limit("shmmax"), (long long)shm.shmmax);
    EQUAL(limit("shmall"), (long long)shm.shmall);
    EQUAL(limit("shmmni"), (long long)shm.shmmni);
    struct msginfo msg;
    OK(msgctl(0, IPC_INFO, (struct msqid_ds *)&msg));
    EQUAL(limit("msgmax"), msg.msgmax);
    EQUAL(limit("msgmnb"), msg.msgmnb);
    EQUAL(limit("msgmni"), msg.msgmni);
    struct seminfo sem;
    OK(semctl(0, 0, IPC_INFO, (union semun){.info = &sem}));
    char *text = contents("/proc/sys/kernel/sem"), wanted[LINE];
    snprintf(wanted, sizeof wanted, "%d\t%d\t%d\t%d\n", sem.semmsl, sem.semmns, sem.semopm,
             sem.semmni);
    CHECK(strcmp(text, wanted) == 0);
    free(text);
}

/* Each function that opens files has the same answer; and what was asked for of the descriptor. */
static void by_each_function(void) {
    const char *path = "/proc/sysvipc/sem";
    int id = (int)OK(semget(IPC_PRIVATE, 7, 0600));
    long long n[MOST];
    int (*open_2)(const char *, int) = (int (*)(const char *, int))dlsym(RTLD_DEFAULT, "__open_2");
    int (*open64_2)(const char *, int) =
        (int (*)(const char *, int))dlsym(RTLD_DEFAULT, "__open64_2");
    int (*openat_2)(int, const char *, int) =
        (int (*)(int, const char *, int))dlsym(RTLD_DEFAULT, "__openat_2");
    int (*openat64_2)(int, const char *, int) =
        (int (*)(int, const char *, int))dlsym(RTLD_DEFAULT, "__openat64_2");
    CHECK(open_2 && open64_2 && openat_2 && openat64_2);
    int opened[] = {
        open(path, O_RDONLY | O_CLOEXEC),
        open64(path, O_RDONLY | O_CLOEXEC),
        openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC),
        openat64(99, path, O_RDONLY | O_CLOEXEC), /* an absolute path needs no directory */
        open_2(path, O_RDONLY | O_CLOEXEC),
        open64_2(path, O_RDONLY | O_CLOEXEC),
        openat_2(AT_FDCWD, path, O_RDONLY | O_CLOEXEC),
        openat64_2(AT_FDCWD, path, O_RDONLY | O_CLOEXEC),
    };
    for (size_t i = 0; i < sizeof opened / sizeof *opened; i++) {
        EQUAL(OK(fcntl(opened[i], F_GETFD)), FD_CLOEXEC);
        EQUAL(OK(fcntl(opened[i], F_GETFL)) & O_ACCMODE, O_RDONLY);
        FAILS(write(opened[i], "", 1), EBADF);
        char *text = whole(opened[i]);
        EQUAL(line_of(text, id, n), 10);
        EQUAL(n[3], 7);
        free(text);
    }
    int kept = (int)OK(open(path, O_RDONLY | O_NONBLOCK));
    EQUAL(OK(fcntl(kept, F_GETFD)), 0);
    CHECK(OK(fcntl(kept, F_GETFL)) & O_NONBLOCK);
    OK(close(kept));
    FILE *(*functions[])(const char *, const char *) = {fopen, fopen64};
    for (int i = 0; i < 2; i++) {
        FILE *file = functions[i](path, "re");
        CHECK(file != NULL);
        EQUAL(OK(fcntl(fileno(file), F_GETFD)), FD_CLOEXEC);
        char line[LINE];
        int found = 0;
        for (int at, sems; fgets(line, sizeof line, file) != NULL;)
            if (sscanf(line, "%*d %d %*o %d", &at, &sems) == 2 && at == id)
                found = sems;
        EQUAL(found, 7);
        rewind(file);
        CHECK(fgets(line, sizeof line, file) && strstr(line, "semid"));
        EQUAL(fclose(file), 0);
    }
    OK(semctl(id, 0, IPC_RMID));
}

/* What else there is to open is as it was. */
static void others_are_as_they_were(void) {
    char directory[] = "/tmp/listing-XXXXXX", path[64];
    CHECK(mkdtemp(directory) != NULL);
    snprintf(path, sizeof path, "%s/new", directory);
    mode_t mask = umask(0);
    int fd = (int)OK(open(path, O_CREAT | O_EXCL | O_RDWR, 0641));
    umask(mask);
    struct stat stat;
    OK(fstat(fd, &stat));
    EQUAL(stat.st_mode & 07777, 0641);
    OK(close(fd));
    FAILS(open(path, O_CREAT | O_EXCL | O_RDWR, 0600), EEXIST);
    FAILS(open((const char *)8, O_RDONLY), EFAULT);
    FAILS(open("/proc/sysvipc/none", O_RDONLY), ENOENT);
    FAILS(open("/proc/sysvipc/shm", O_RDONLY | O_DIRECTORY), ENOTDIR);
    CHECK(fopen("/proc/sysvipc/none", "r") == NULL && errno == ENOENT);
    fd = (int)OK(open("/proc/sysvipc", O_RDONLY | O_DIRECTORY));
    OK(close(fd));
    OK(unlink(path));
    OK(rmdir(directory));
}

TESTS({"lists_segments", lists_segments}, {"lists_sets", lists_sets},
      {"lists_queues", lists_queues}, {"lists_many", lists_many}, {"tells_limits", tells_limits},
      {"by_each_function", by_each_function}, {"others_are_as_they_were", others_are_as_they_were})
