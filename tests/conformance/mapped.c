/*
 * What keeps a removed segment is that somebody maps it, however that came to be: by a child that a
 * system call of the kernel's has made and that makes no call, or by a mapping that was moved. The
 * pool has 16 MiB, so that what is freed is given to others.
 */
#include "tests.h"
#include <pthread.h>
#include <sched.h>
#include <spawn.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define SIZE (1 << 20)

extern char **environ;

/* Where a segment full of 'C' is attached, in the process that has made it. */
static int id;
static char *segment;
/* The heir waits for a word, answers whether its memory is unchanged, and ends at the next word. */
static int words[2], answers[2];

static void make(void) {
    id = (int)OK(shmget(IPC_PRIVATE, SIZE, 0600));
    segment = shmat(id, NULL, 0);
    OK((long)segment);
    memset(segment, 'C', SIZE);
}

static int changed_of(int length, const char *from) {
    int count = 0;
    for (int i = 0; i < length; i++)
        count += from[i] != 'C';
    return count;
}

static int changed(const char *from) { return changed_of(SIZE, from); }

static int heir(void *unused) {
    char word;
    (void)unused;
    while (read(words[0], &word, 1) == 1 && word != 'e') {
        int count = word == 'c' ? changed(segment) : 0;
        if (word == 'n') {
            struct shmid_ds ds;
            count = shmctl(id, IPC_STAT, &ds) == 0 ? (int)ds.shm_nattch : -1;
        }
        if (word == 'd')
            count = shmdt(segment);
        if (write(answers[1], &count, sizeof count) != sizeof count)
            break;
    }
    _exit(0);
}

static int ask(char word) {
    int answer = -2;
    EQUAL(write(words[1], &word, 1), 1);
    EQUAL(read(answers[0], &answer, sizeof answer), sizeof answer);
    return answer;
}

static void end_heir(void) { EQUAL(write(words[1], "e", 1), 1); }

static char stack[1 << 17] __attribute__((aligned(16)));

static pid_t by_clone(void) { return clone(heir, stack + sizeof stack, SIGCHLD, NULL); }
static pid_t by_clone_with_memory(void) {
    return clone(heir, stack + sizeof stack, CLONE_VM | SIGCHLD, NULL);
}
static pid_t raw_clone(void) { return (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0); }
static pid_t raw_clone3(void) {
    uint64_t arguments[8] = {[4] = SIGCHLD};
    return (pid_t)syscall(SYS_clone3, arguments, sizeof arguments);
}
/* By the instruction itself. */
static pid_t bare_clone(void) {
#ifdef __x86_64__
    long result = SYS_clone;
    register long r10 __asm__("r10") = 0;
    register long r8 __asm__("r8") = 0;
    __asm__ volatile("syscall"
                     : "+a"(result)
                     : "D"((long)SIGCHLD), "S"(0L), "d"(0L), "r"(r10), "r"(r8)
                     : "rcx", "r11", "memory");
    return (pid_t)result;
#else
    return raw_clone();
#endif
}
static pid_t twice(void) {
    pid_t middle = bare_clone();
    if (middle == 0) {
        pid_t last = bare_clone();
        if (last != 0)
            _exit(last < 0);
    }
    return middle;
}
static void *clone_here(void *unused) {
    (void)unused;
    pid_t pid = bare_clone();
    if (pid == 0)
        heir(NULL);
    return (void *)(long)pid;
}
static pid_t in_a_thread(void) {
    pthread_t thread;
    void *pid;
    EQUAL(pthread_create(&thread, NULL, clone_here, NULL), 0);
    EQUAL(pthread_join(thread, &pid), 0);
    return (pid_t)(long)pid;
}
/* A counted child forks before it makes a call. */
static pid_t after_fork(void) {
    pid_t middle = fork();
    if (middle == 0) {
        pid_t last = bare_clone();
        if (last != 0)
            _exit(last < 0);
    }
    return middle;
}

static pid_t (*way)(void);

static void bequeath(void *how) {
    make();
    OK(shmctl(id, IPC_RMID, NULL));
    pid_t pid = way();
    if (pid == 0)
        heir(NULL);
    OK(pid);
    EQUAL(write(answers[1], &id, sizeof id), sizeof id);
    if (how != NULL)
        raise(SIGKILL);
    _exit(0);
}

/* Others take all the memory that there is, and write to it. */
static void take_all(void) {
    static int other[40];
    static char *at[40];
    int n = 0;
    for (; n < 40 && (other[n] = shmget(IPC_PRIVATE, SIZE, 0600)) != -1; n++) {
        at[n] = shmat(other[n], NULL, 0);
        OK((long)at[n]);
        memset(at[n], 'X', SIZE);
    }
    CHECK(n > 5);
    while (n-- > 0) {
        OK(shmdt(at[n]));
        OK(shmctl(other[n], IPC_RMID, NULL));
    }
}

/* A removed segment is gone soon. */
static void soon_gone(int which) {
    struct shmid_ds ds;
    for (int tries = 0; tries < 1000 && shmctl(which, IPC_STAT, &ds) == 0; tries++)
        nap_ms(5);
    FAILS(shmctl(which, IPC_STAT, &ds), EINVAL);
}

static void outlives(pid_t (*made_by)(void), void *how, int calls) {
    OK(pipe(words));
    OK(pipe(answers));
    way = made_by;
    pid_t maker = child(bequeath, how);
    EQUAL(read(answers[0], &id, sizeof id), sizeof id);
    int status;
    OK(waitpid(maker, &status, 0));
    nap_ms(20);
    take_all();
    EQUAL(ask('c'), 0);
    if (calls) {
        EQUAL(ask('n'), 1);
        EQUAL(ask('d'), 0);
        soon_gone(id);
        take_all();
    }
    end_heir();
    soon_gone(id);
}

static void after_Fork(void) { outlives(_Fork, NULL, 1); }
static void after_clone(void) { outlives(by_clone, NULL, 1); }
static void after_raw_clone(void) { outlives(raw_clone, NULL, 1); }
static void after_raw_clone3(void) { outlives(raw_clone3, NULL, 1); }
static void after_the_bare_instruction(void) { outlives(bare_clone, "killed", 1); }
static void after_a_clone_of_a_clone(void) { outlives(twice, NULL, 1); }
static void after_a_clone_in_a_thread(void) { outlives(in_a_thread, NULL, 1); }
static void after_a_clone_of_a_fork(void) { outlives(after_fork, NULL, 1); }
static void after_a_clone_with_the_same_memory(void) { outlives(by_clone_with_memory, NULL, 0); }
static void after_many_makers(void) {
    for (int i = 0; i < 20; i++)
        outlives(bare_clone, i % 2 ? "killed" : NULL, i % 3);
}

/* The heir's maker goes on, and is the last that is known to have it attached. */
static void a_living_maker_detaches(void) {
    OK(pipe(words));
    OK(pipe(answers));
    make();
    int kept = id;
    char *at = segment;
    pid_t pid = bare_clone();
    if (pid == 0)
        heir(NULL);
    OK(shmctl(kept, IPC_RMID, NULL));
    OK(shmdt(at));
    take_all();
    EQUAL(ask('c'), 0);
    /* What is made and removed now is gone at once all the same. */
    make();
    int next = id;
    OK(shmdt(segment));
    OK(shmctl(next, IPC_RMID, NULL));
    FAILS(shmctl(next, IPC_RMID, NULL), EINVAL);
    end_heir();
    joined(pid, 0);
    soon_gone(kept);
}

/* It was detached before, by all that were known to have it, and is removed afterwards. */
static void removed_after_the_last_known_detach(void) {
    OK(pipe(words));
    OK(pipe(answers));
    make();
    pid_t pid = bare_clone();
    if (pid == 0)
        heir(NULL);
    OK(shmdt(segment));
    OK(shmctl(id, IPC_RMID, NULL));
    take_all();
    EQUAL(ask('c'), 0);
    end_heir();
    joined(pid, 0);
    soon_gone(id);
}

static void detaches(void *at) { OK(shmdt(at)); }

static void does_nothing(void *unused) {
    (void)unused;
    _exit(0);
}

/* Forks that are counted leave no doubt: what is removed is gone with the last detach. */
static void nothing_is_kept_for_nobody(void) {
    make();
    char *first = segment;
    int first_id = id;
    for (int i = 0; i < 5; i++) {
        make();
        OK(shmctl(id, IPC_RMID, NULL));
        joined(child(detaches, segment), 0);
        joined(child(does_nothing, NULL), 0);
        if (i % 2) {
            pid_t pid = bare_clone();
            if (pid == 0)
                _exit(0);
            joined(pid, 0);
        }
        OK(shmdt(segment));
        struct shmid_ds ds;
        /* Where the process was copied meanwhile, the kernel is asked, as far as it can tell. */
        if (i % 2 == 0)
            FAILS(shmctl(id, IPC_STAT, &ds), EINVAL);
    }
    OK(shmdt(first));
    OK(shmctl(first_id, IPC_RMID, NULL));
    take_all();
}

/* A program that is executed has nothing of it. */
static void spawned(int by_vfork) {
    make();
    OK(shmctl(id, IPC_RMID, NULL));
    char *arguments[] = {"sleep", "60", NULL};
    pid_t pid;
    if (by_vfork) {
        pid = vfork();
        if (pid == 0) {
            execvp("sleep", arguments);
            _exit(1);
        }
        OK(pid);
    } else
        EQUAL(posix_spawnp(&pid, "sleep", NULL, NULL, arguments, environ), 0);
    OK(shmdt(segment));
    /* Its parent goes on before the kernel has closed what a program that is executed does not get.
     */
    soon_gone(id);
    kill(pid, SIGKILL);
    OK(waitpid(pid, NULL, 0));
}
static void not_after_vfork(void) { spawned(1); }
static void not_after_posix_spawn(void) { spawned(0); }

/* Room for `count` segments, where nothing is but what was reserved. */
static char *room_for(size_t count) {
    char *room = mmap(NULL, count * SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(room != MAP_FAILED);
    return room;
}

static int attached(void) {
    struct shmid_ds ds;
    OK(shmctl(id, IPC_STAT, &ds));
    return (int)ds.shm_nattch;
}

/* Moves the segment, by a system call that no library sees. */
static char *moved(size_t to_size) {
    char *room = room_for(4);
    long at =
        syscall(SYS_mremap, segment, SIZE, to_size, MREMAP_MAYMOVE | MREMAP_FIXED, room + SIZE);
    EQUAL(at, (long)(room + SIZE));
    return (char *)at;
}

static void moved_and_attached_again_at_the_old_place(void) {
    make();
    char *at = moved(SIZE);
    OK(shmctl(id, IPC_RMID, NULL));
    EQUAL(attached(), 1);
    EQUAL((long)shmat(id, segment, 0), (long)segment);
    EQUAL(attached(), 2);
    OK(shmdt(segment));
    EQUAL(attached(), 1);
    take_all();
    EQUAL(changed(at), 0);
    FAILS(shmdt(segment), EINVAL);
    OK(shmdt(at));
    FAILS(shmdt(at), EINVAL);
    FAILS(shmctl(id, IPC_RMID, NULL), EINVAL);
}

static void another_is_attached_at_the_old_place(void) {
    make();
    char *at = moved(SIZE), *old = segment;
    int first = id;
    OK(shmctl(first, IPC_RMID, NULL));
    int second = (int)OK(shmget(IPC_PRIVATE, SIZE, 0600));
    EQUAL((long)shmat(second, old, 0), (long)old);
    OK(shmdt(old));
    OK(shmctl(second, IPC_RMID, NULL));
    take_all();
    EQUAL(changed(at), 0);
    OK(shmdt(at));
    FAILS(shmctl(first, IPC_RMID, NULL), EINVAL);
}

static void the_old_place_of_a_moved_one_is_empty(void) {
    make();
    char *at = moved(SIZE);
    OK(shmctl(id, IPC_RMID, NULL));
    FAILS(shmdt(segment), EINVAL);
    take_all();
    EQUAL(changed(at), 0);
    EQUAL(attached(), 1);
    OK(shmdt(at));
    FAILS(shmctl(id, IPC_RMID, NULL), EINVAL);
}

static void moved_twice_and_grown(void) {
    make();
    OK(shmctl(id, IPC_RMID, NULL));
    segment = moved(SIZE);
    segment = moved(2 * SIZE);
    EQUAL(changed(segment), 0);
    EQUAL(attached(), 1);
    OK(shmdt(segment));
    FAILS(shmctl(id, IPC_RMID, NULL), EINVAL);
    /* All of it is gone. */
    FAILS(msync(segment, SIZE, MS_ASYNC), ENOMEM);
    FAILS(msync(segment + SIZE, SIZE, MS_ASYNC), ENOMEM);
    EQUAL(msync(segment + 2 * SIZE, SIZE, MS_ASYNC), 0);
}

static void moved_and_shrunk(void) {
    make();
    OK(shmctl(id, IPC_RMID, NULL));
    char *room = room_for(2);
    long at = syscall(SYS_mremap, segment, SIZE, SIZE / 2, MREMAP_MAYMOVE | MREMAP_FIXED,
                      room + SIZE / 2);
    EQUAL(at, (long)(room + SIZE / 2));
    OK(shmdt((void *)at));
    FAILS(shmctl(id, IPC_RMID, NULL), EINVAL);
    /* What lies behind it stays. */
    EQUAL(msync(room + SIZE, SIZE, MS_ASYNC), 0);
}

static void detaches_the_moved(void *at) {
    OK(shmdt(at));
    FAILS(shmdt(at), EINVAL);
}

static void a_child_has_the_moved_one_too(void) {
    make();
    char *at = moved(SIZE);
    OK(shmctl(id, IPC_RMID, NULL));
    joined(child(detaches_the_moved, at), 0);
    EQUAL(attached(), 1);
    take_all();
    EQUAL(changed(at), 0);
    OK(shmdt(at));
    FAILS(shmctl(id, IPC_RMID, NULL), EINVAL);
}

static void one_of_several_is_moved(void) {
    make();
    char *first = segment, *second = shmat(id, NULL, 0), *third = shmat(id, NULL, SHM_RDONLY);
    OK((long)second);
    OK((long)third);
    OK(shmctl(id, IPC_RMID, NULL));
    segment = second;
    second = moved(SIZE);
    EQUAL(attached(), 3);
    OK(shmdt(first));
    OK(shmdt(third));
    EQUAL(attached(), 1);
    take_all();
    EQUAL(changed(second), 0);
    OK(shmdt(second));
    FAILS(shmctl(id, IPC_RMID, NULL), EINVAL);
}

static void unmapped_and_attached_again(void) {
    make();
    OK(munmap(segment, SIZE));
    EQUAL((long)shmat(id, segment, 0), (long)segment);
    EQUAL(attached(), 1);
    OK(shmdt(segment));
    FAILS(shmdt(segment), EINVAL);
    OK(shmctl(id, IPC_RMID, NULL));
    FAILS(shmctl(id, IPC_RMID, NULL), EINVAL);
}

static void what_is_no_attachment_is_not_detached(void) {
    make();
    char *room = room_for(1);
    FAILS(shmdt(room), EINVAL);
    FAILS(shmdt(segment + 4096), EINVAL);
    FAILS(shmdt((void *)4096), EINVAL);
    EQUAL(msync(room, SIZE, MS_ASYNC), 0);
    EQUAL(changed(segment), 0);
    OK(shmdt(segment));
    OK(shmctl(id, IPC_RMID, NULL));
}

static void doubled(void) {
    make();
    OK(shmctl(id, IPC_RMID, NULL));
    char *second = mremap(segment, 0, SIZE, MREMAP_MAYMOVE);
    OK((long)second);
    EQUAL(attached(), 2);
    OK(shmdt(segment));
    EQUAL(attached(), 1);
    take_all();
    EQUAL(changed(second), 0);
    OK(shmdt(second));
    FAILS(shmctl(id, IPC_RMID, NULL), EINVAL);
}

static void has_one_of_two(void *other) {
    EQUAL(attached(), 3);
    FAILS(msync(segment, SIZE, MS_ASYNC), ENOMEM);
    FAILS(shmdt(segment), EINVAL);
    EQUAL(attached(), 3);
    EQUAL(changed(other), 0);
    OK(shmdt(other));
    EQUAL(attached(), 2);
    _exit(0);
}

/* What the program keeps from children is not counted for them. */
static void kept_from_children(void) {
    make();
    char *other = shmat(id, NULL, 0);
    OK((long)other);
    OK(madvise(segment, SIZE, MADV_DONTFORK));
    OK(shmctl(id, IPC_RMID, NULL));
    joined(child(has_one_of_two, other), 0);
    EQUAL(attached(), 2);
    /* A child that makes no call. */
    OK(pipe(words));
    pid_t pid = fork();
    if (pid == 0) {
        char word;
        close(words[1]);
        _exit((int)read(words[0], &word, 1));
    }
    OK(pid);
    EQUAL(attached(), 3);
    close(words[1]);
    joined(pid, 0);
    OK(shmdt(other));
    EQUAL(attached(), 1);
    OK(madvise(segment, SIZE, MADV_DOFORK));
    joined(child(detaches, segment), 0);
    EQUAL(attached(), 1);
    OK(shmdt(segment));
    FAILS(shmctl(id, IPC_RMID, NULL), EINVAL);
}

/* A child that is counted makes one that is not, and is killed. */
static void a_child_of_a_killed_child(void) {
    make();
    OK(pipe(words));
    OK(pipe(answers));
    pid_t pid = fork();
    if (pid == 0) {
        if (bare_clone() == 0)
            heir(NULL);
        raise(SIGKILL);
    }
    OK(pid);
    int status;
    OK(waitpid(pid, &status, 0));
    OK(shmctl(id, IPC_RMID, NULL));
    OK(shmdt(segment));
    take_all();
    EQUAL(ask('c'), 0);
    end_heir();
    soon_gone(id);
}

static void *remap(int by_number, void *at, size_t length, int flags, void *to) {
    flags |= MREMAP_MAYMOVE;
    if (by_number)
        return (void *)syscall(SYS_mremap, at, length, length, flags, to);
    return mremap(at, length, length, flags, to);
}

/* A page out of the middle moves away, and what lies before it is detached. */
static void a_part_is_moved(void) {
    for (int by_number = 0; by_number < 2; by_number++) {
        make();
        char *room = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        OK((long)room);
        char *middle = segment + 5 * 4096;
        void *at = remap(by_number, middle, 4096, MREMAP_FIXED, room);
        EQUAL((long)at, (long)room);
        OK(shmctl(id, IPC_RMID, NULL));
        OK(shmdt(segment));
        take_all();
        EQUAL(changed_of(4096, room), 0);
        OK(munmap(room, 4096));
        OK(munmap(segment, SIZE));
        soon_gone(id);
    }
}

/* A move that leaves the old place mapped. */
static void moved_and_still_there(void) {
    for (int by_number = 0; by_number < 2; by_number++) {
        make();
        char *at = remap(by_number, segment, SIZE, MREMAP_DONTUNMAP, NULL);
        OK((long)at);
        OK(shmctl(id, IPC_RMID, NULL));
        OK(shmdt(segment));
        take_all();
        EQUAL(changed(at), 0);
        OK(munmap(at, SIZE));
        soon_gone(id);
    }
}

/* A child has one page of what its parent keeps from children. */
static void kept_from_children_but_for_a_page(void) {
    for (int by_number = 0; by_number < 2; by_number++) {
        make();
        OK(pipe(words));
        OK(pipe(answers));
        char *page = segment + 3 * 4096;
        OK(madvise(segment, SIZE, MADV_DONTFORK));
        OK(by_number ? (int)syscall(SYS_madvise, page, 4096, MADV_DOFORK)
                     : madvise(page, 4096, MADV_DOFORK));
        pid_t pid = fork();
        if (pid == 0) {
            char word;
            int count = read(words[0], &word, 1) == 1 ? changed_of(4096, page) : -1;
            _exit(write(answers[1], &count, sizeof count) != sizeof count ||
                  read(words[0], &word, 1) != 1);
        }
        OK(pid);
        OK(shmctl(id, IPC_RMID, NULL));
        OK(shmdt(segment));
        take_all();
        EQUAL(ask('c'), 0);
        end_heir();
        joined(pid, 0);
        soon_gone(id);
    }
}

TESTS({"mapped/after_Fork", after_Fork}, {"mapped/after_clone", after_clone},
      {"mapped/after_raw_clone", after_raw_clone}, {"mapped/after_raw_clone3", after_raw_clone3},
      {"mapped/after_the_bare_instruction", after_the_bare_instruction},
      {"mapped/after_a_clone_of_a_clone", after_a_clone_of_a_clone},
      {"mapped/after_a_clone_in_a_thread", after_a_clone_in_a_thread},
      {"mapped/after_a_clone_of_a_fork", after_a_clone_of_a_fork},
      {"mapped/after_a_clone_with_the_same_memory", after_a_clone_with_the_same_memory},
      {"mapped/after_many_makers", after_many_makers},
      {"mapped/a_living_maker_detaches", a_living_maker_detaches},
      {"mapped/removed_after_the_last_known_detach", removed_after_the_last_known_detach},
      {"mapped/nothing_is_kept_for_nobody", nothing_is_kept_for_nobody},
      {"mapped/not_after_vfork", not_after_vfork},
      {"mapped/not_after_posix_spawn", not_after_posix_spawn},
      {"mapped/moved_and_attached_again_at_the_old_place",
       moved_and_attached_again_at_the_old_place},
      {"mapped/another_is_attached_at_the_old_place", another_is_attached_at_the_old_place},
      {"mapped/the_old_place_of_a_moved_one_is_empty", the_old_place_of_a_moved_one_is_empty},
      {"mapped/moved_twice_and_grown", moved_twice_and_grown},
      {"mapped/moved_and_shrunk", moved_and_shrunk},
      {"mapped/a_child_has_the_moved_one_too", a_child_has_the_moved_one_too},
      {"mapped/one_of_several_is_moved", one_of_several_is_moved}, {"mapped/doubled", doubled},
      {"mapped/kept_from_children", kept_from_children},
      {"mapped/a_child_of_a_killed_child", a_child_of_a_killed_child},
      {"mapped/a_part_is_moved", a_part_is_moved},
      {"mapped/moved_and_still_there", moved_and_still_there},
      {"mapped/kept_from_children_but_for_a_page", kept_from_children_but_for_a_page},
      {"mapped/unmapped_and_attached_again", unmapped_and_attached_again},
      {"mapped/what_is_no_attachment_is_not_detached", what_is_no_attachment_is_not_detached})
