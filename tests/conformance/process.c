/*
 * The calls wherever a program may make them: before main and after it, in handlers, in the
 * children of fork, vfork, clone and of threaded programs, after exec, after closing every
 * descriptor, through syscall(2).
 */
#include "tests.h"
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/syscall.h>

extern char **environ;

static int set_before_main = -1;

__attribute__((constructor)) static void begin(void) {
    set_before_main = semget(IPC_PRIVATE, 1, 0600);
}

/* The tests' processes end by _exit, so this is only what the program itself leaves. */
__attribute__((destructor)) static void end(void) { semctl(set_before_main, 0, IPC_RMID); }

static int add(int id, int by, int flags) {
    struct sembuf operation = {0, (short)by, (short)flags};
    return semop(id, &operation, 1);
}

static void works_before_main(void) {
    CHECK(set_before_main != -1);
    OK(add(set_before_main, 2, 0));
    EQUAL(OK(semctl(set_before_main, 0, GETVAL)), 2);
    OK(add(set_before_main, -2, 0));
}

static int exit_set;

static void raise_at_exit(void) { add(exit_set, 5, 0); }

static void leaves_by_exit(void *unused) {
    (void)unused;
    OK(add(exit_set, 1, SEM_UNDO));
    atexit(raise_at_exit);
    exit(0);
}

static void works_in_an_exit_handler(void) {
    exit_set = (int)OK(semget(IPC_PRIVATE, 1, 0600));
    joined(child(leaves_by_exit, NULL), 0);
    EQUAL(OK(semctl(exit_set, 0, GETVAL)), 5);
    OK(semctl(exit_set, 0, IPC_RMID));
}

static void closes_everything(void *id) {
    closefrom(0);
    OK(add(*(int *)id, 1, SEM_UNDO));
    int segment = (int)OK(shmget(IPC_PRIVATE, 9000, 0600));
    char *start = shmat(segment, NULL, 0);
    OK((long)start);
    start[8999] = 1;
    EQUAL(OK(open("/dev/null", O_RDONLY)), 0); /* the lowest number is the program's */
    OK(shmdt(start));
    OK(shmctl(segment, IPC_RMID, NULL));
}

static void works_without_descriptors(void) {
    int id = (int)OK(semget(IPC_PRIVATE, 1, 0600));
    pid_t pid = child(closes_everything, &id);
    joined(pid, 0);
    EQUAL(OK(semctl(id, 0, GETVAL)), 0);
    OK(semctl(id, 0, IPC_RMID));
}

static int open_descriptors(void) {
    int count = 0;
    DIR *directory = opendir("/proc/self/fd");
    CHECK(directory != NULL);
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;)
        count += entry->d_name[0] != '.';
    closedir(directory);
    return count;
}

static void uses_no_low_descriptor(void) {
    int before = open("/dev/null", O_RDONLY);
    close(before);
    int id = (int)OK(msgget(IPC_PRIVATE, 0600));
    int after = open("/dev/null", O_RDONLY);
    EQUAL(after, before);
    close(after);
    int count = 0;
    for (int i = 0; i < 50; i++) {
        int segment = (int)OK(shmget(IPC_PRIVATE, 4096, 0600));
        void *start = shmat(segment, NULL, 0);
        OK((long)start);
        OK(shmdt(start));
        OK(shmctl(segment, IPC_RMID, NULL));
        after = open("/dev/null", O_RDONLY);
        EQUAL(after, before);
        close(after);
        /* What the first attachment takes is kept. */
        count = i == 0 ? open_descriptors() : count;
    }
    EQUAL(open_descriptors(), count);
    OK(msgctl(id, IPC_RMID, NULL));
}

static void keeps_errno_on_success(void) {
    errno = 77;
    int id = semget(IPC_PRIVATE, 1, 0600);
    EQUAL(errno, 77);
    add(id, 1, SEM_UNDO);
    EQUAL(errno, 77);
    int segment = shmget(IPC_PRIVATE, 4096, 0600);
    void *start = shmat(segment, NULL, 0);
    shmdt(start);
    shmctl(segment, IPC_RMID, NULL);
    EQUAL(errno, 77);
    semctl(id, 0, IPC_RMID);
    EQUAL(errno, 77);
}

static volatile int stop;

static void *spins(void *unused) {
    (void)unused;
    while (!stop)
        free(malloc(100));
    return NULL;
}

/* Only async-signal-safe functions may be called in the child of a threaded process; these calls
 * are such. */
static void works_in_the_child_of_a_threaded_process(void) {
    int id = (int)OK(semget(IPC_PRIVATE, 1, 0600));
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        EQUAL(pthread_create(&threads[i], NULL, spins, NULL), 0);
    for (int round = 0; round < 50; round++) {
        pid_t pid = fork();
        if (pid == 0) {
            int segment = shmget(IPC_PRIVATE, 4096, 0600);
            void *start = shmat(segment, NULL, 0);
            int good = add(id, 1, 0) == 0 && start != (void *)-1 && shmdt(start) == 0;
            shmctl(segment, IPC_RMID, NULL);
            _exit(good ? 0 : 1);
        }
        joined(pid, 0);
    }
    stop = 1;
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    EQUAL(OK(semctl(id, 0, GETVAL)), 50);
    OK(semctl(id, 0, IPC_RMID));
}

static int thread_set;

static void *pumps(void *unused) {
    (void)unused;
    for (int i = 0; i < 3000; i++) {
        OK(add(thread_set, -1, SEM_UNDO));
        OK(add(thread_set, 1, SEM_UNDO));
    }
    return NULL;
}

static void works_in_many_threads_at_once(void) {
    enum { COUNT = 6 };
    thread_set = (int)OK(semget(IPC_PRIVATE, 1, 0600));
    OK(add(thread_set, 2, 0));
    pthread_t threads[COUNT];
    for (int i = 0; i < COUNT; i++)
        EQUAL(pthread_create(&threads[i], NULL, pumps, NULL), 0);
    for (int i = 0; i < COUNT; i++)
        pthread_join(threads[i], NULL);
    EQUAL(OK(semctl(thread_set, 0, GETVAL)), 2);
    OK(semctl(thread_set, 0, IPC_RMID));
}

static int thread_queue;

static void *receives_its_type(void *type) {
    struct {
        long type;
        char text[8];
    } message;
    EQUAL(OK(msgrcv(thread_queue, &message, sizeof message.text, (long)type, 0)), 5);
    EQUAL(message.type, (long)type);
    return NULL;
}

static void threads_wait_side_by_side(void) {
    enum { COUNT = 5 };
    pthread_t threads[COUNT];
    struct {
        long type;
        char text[8];
    } message = {0, "hello"};
    thread_queue = (int)OK(msgget(IPC_PRIVATE, 0600));
    for (long i = 0; i < COUNT; i++)
        EQUAL(pthread_create(&threads[i], NULL, receives_its_type, (void *)(i + 1)), 0);
    nap_ms(100);
    for (int i = COUNT; i > 0; i--) {
        message.type = i;
        OK(msgsnd(thread_queue, &message, 5, 0));
        EQUAL(pthread_join(threads[i - 1], NULL), 0);
    }
    OK(msgctl(thread_queue, IPC_RMID, NULL));
}

static void *waits_in_vain(void *id) {
    struct sembuf list[2] = {{0, -1, SEM_UNDO}, {1, -1, SEM_UNDO}};
    semop(*(int *)id, list, 2);
    return NULL;
}

static void leaves_while_a_thread_waits(void *id) {
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        EQUAL(pthread_create(&threads[i], NULL, waits_in_vain, id), 0);
    while (OK(semctl(*(int *)id, 0, GETNCNT)) != 3)
        nap_ms(1);
    exit(0);
}

static void an_exit_ends_the_waits_of_other_threads(void) {
    int id = (int)OK(semget(IPC_PRIVATE, 2, 0600));
    joined(child(leaves_while_a_thread_waits, &id), 0);
    EQUAL(OK(semctl(id, 0, GETNCNT)), 0);
    OK(semctl(id, 0, SETVAL, (union semun){.val = 1}));
    OK(semctl(id, 1, SETVAL, (union semun){.val = 1}));
    EQUAL(OK(semctl(id, 0, GETVAL)), 1);
    OK(semctl(id, 0, IPC_RMID));
}

/* The child of vfork shares the parent's memory: what it does must leave the parent as it was. */
static void survives_vfork(void) {
    int id = (int)OK(semget(IPC_PRIVATE, 1, 0600));
    int segment = (int)OK(shmget(IPC_PRIVATE, 4096, 0600));
    char *start = shmat(segment, NULL, 0);
    OK((long)start);
    char *arguments[] = {"true", NULL};
    for (int round = 0; round < 20; round++) {
        pid_t pid = vfork();
        if (pid == 0) {
            execv("/bin/true", arguments);
            _exit(1);
        }
        joined(pid, 0);
        OK(posix_spawn(&pid, "/bin/true", NULL, NULL, arguments, environ) == 0 ? 0 : -1);
        joined(pid, 0);
        OK(add(id, 1, SEM_UNDO));
    }
    start[1] = 1;
    struct shmid_ds ds;
    OK(shmctl(segment, IPC_STAT, &ds));
    EQUAL(ds.shm_nattch, 1);
    EQUAL(OK(semctl(id, 0, GETVAL)), 20);
    OK(shmdt(start));
    OK(shmctl(segment, IPC_RMID, NULL));
    OK(semctl(id, 0, IPC_RMID));
}

static void forks_on(void *depth_left) {
    int left = *(int *)depth_left - 1;
    OK(add(exit_set, 1, left % 2 ? SEM_UNDO : 0));
    if (left > 0)
        joined(child(forks_on, &left), 0);
}

static void a_chain_of_forks(void) {
    int depth = 20;
    exit_set = (int)OK(semget(IPC_PRIVATE, 1, 0600));
    joined(child(forks_on, &depth), 0);
    EQUAL(OK(semctl(exit_set, 0, GETVAL)), 10);
    OK(semctl(exit_set, 0, IPC_RMID));
}

static void one_after_another(void *id) { OK(add(*(int *)id, 1, SEM_UNDO)); }

/* More processes than can be in any table at the same time. */
static void many_short_lives(void) {
    int id = (int)OK(semget(IPC_PRIVATE, 1, 0600));
    for (int i = 0; i < 2000; i++)
        joined(child(one_after_another, &id), 0);
    EQUAL(OK(semctl(id, 0, GETVAL)), 0);
    OK(semctl(id, 0, IPC_RMID));
}

static void through_syscall(void) {
    int id = (int)OK(syscall(SYS_semget, IPC_PRIVATE, 2, 0600));
    struct sembuf operation = {1, 3, 0};
    OK(syscall(SYS_semop, id, &operation, 1UL));
    EQUAL(OK(semctl(id, 1, GETVAL)), 3);
    EQUAL(OK(syscall(SYS_semctl, id, 1, GETVAL, 0)), 3);
    struct timespec limit = {0, 1000000};
    operation.sem_op = -4;
    FAILS(syscall(SYS_semtimedop, id, &operation, 1UL, &limit), EAGAIN);
    OK(syscall(SYS_semctl, id, 0, IPC_RMID, 0));
    int segment = (int)OK(syscall(SYS_shmget, IPC_PRIVATE, 4096UL, 0600));
    char *start = (char *)OK(syscall(SYS_shmat, segment, NULL, 0));
    start[0] = 1;
    struct shmid_ds ds;
    OK(syscall(SYS_shmctl, segment, IPC_STAT, &ds));
    EQUAL(ds.shm_nattch, 1);
    OK(syscall(SYS_shmdt, start));
    OK(syscall(SYS_shmctl, segment, IPC_RMID, NULL));
    int queue = (int)OK(syscall(SYS_msgget, IPC_PRIVATE, 0600));
    struct {
        long type;
        char text[8];
    } message = {4, "seven"};
    OK(syscall(SYS_msgsnd, queue, &message, 6UL, 0));
    message.text[0] = 0;
    EQUAL(OK(syscall(SYS_msgrcv, queue, &message, 8UL, 4L, 0)), 6);
    CHECK(strcmp(message.text, "seven") == 0);
    OK(syscall(SYS_msgctl, queue, IPC_RMID, NULL));
    EQUAL(syscall(SYS_getpid), getpid());
}

static void handler_adds(int number) {
    (void)number;
    add(exit_set, 1, 0);
}

/* Signals that use the same semaphore rain on a process that uses it, too. */
static void a_handler_meets_the_calls_it_interrupts(void) {
    enum { ROUNDS = 20000 };
    exit_set = (int)OK(semget(IPC_PRIVATE, 1, 0600));
    handle(SIGUSR1, handler_adds);
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid == 0) {
        for (;;) {
            kill(parent, SIGUSR1);
            usleep(50);
        }
    }
    for (int i = 0; i < ROUNDS; i++) {
        OK(add(exit_set, 1, SEM_UNDO));
        while (add(exit_set, -1, SEM_UNDO) == -1)
            EQUAL(errno, EINTR);
        if (OK(semctl(exit_set, 0, GETVAL)) > 20000)
            OK(semctl(exit_set, 0, SETVAL, (union semun){.val = 0}));
    }
    killed(pid);
    OK(semctl(exit_set, 0, IPC_RMID));
}

static void becomes_someone(void *id) {
    OK(setgid(12345));
    OK(setuid(12345));
    FAILS(add(*(int *)id, 1, 0), EACCES);
    int own = (int)OK(semget(IPC_PRIVATE, 1, 0600));
    OK(add(own, 1, SEM_UNDO));
    OK(semctl(own, 0, IPC_RMID));
    FAILS(semctl(*(int *)id, 0, IPC_RMID), EPERM);
}

static void changes_root(void *id) {
    OK(chroot("/proc/self/fdinfo"));
    OK(chdir("/"));
    OK(add(*(int *)id, 1, SEM_UNDO));
    int segment = (int)OK(shmget(IPC_PRIVATE, 4096, 0600));
    char *start = shmat(segment, NULL, 0);
    OK((long)start);
    start[5] = 5;
    OK(shmctl(segment, IPC_RMID, NULL));
}

static void survives_a_change_of_user_and_root(void) {
    if (geteuid() != 0)
        skip("only root can become someone else");
    int id = (int)OK(semget(IPC_PRIVATE, 1, 0600));
    joined(child(becomes_someone, &id), 0);
    joined(child(changes_root, &id), 0);
    EQUAL(OK(semctl(id, 0, GETVAL)), 0);
    OK(semctl(id, 0, IPC_RMID));
}

TESTS({"process/works_before_main", works_before_main},
      {"process/works_in_an_exit_handler", works_in_an_exit_handler},
      {"process/works_without_descriptors", works_without_descriptors},
      {"process/uses_no_low_descriptor", uses_no_low_descriptor},
      {"process/keeps_errno_on_success", keeps_errno_on_success},
      {"process/works_in_the_child_of_a_threaded_process",
       works_in_the_child_of_a_threaded_process},
      {"process/works_in_many_threads_at_once", works_in_many_threads_at_once},
      {"process/threads_wait_side_by_side", threads_wait_side_by_side},
      {"process/an_exit_ends_the_waits_of_other_threads", an_exit_ends_the_waits_of_other_threads},
      {"process/survives_vfork", survives_vfork}, {"process/a_chain_of_forks", a_chain_of_forks},
      {"process/many_short_lives", many_short_lives}, {"process/through_syscall", through_syscall},
      {"process/a_handler_meets_the_calls_it_interrupts", a_handler_meets_the_calls_it_interrupts},
      {"process/survives_a_change_of_user_and_root", survives_a_change_of_user_and_root})
