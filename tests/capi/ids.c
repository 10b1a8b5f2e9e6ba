/*
 * VSHMEM_UID_MAP and VSHMEM_GID_MAP: users that are called otherwise in the pool. Root makes a
 * queue and gives it to user 70000 of the pool; then this program runs anew as other users, with
 * maps.
 */
#include "capi.h"
#include <dlfcn.h>
#include <grp.h>

#define KEY 77

static struct msqid_ds status(int queue) {
    struct msqid_ds ds;
    CHECK(msgctl(queue, IPC_STAT, &ds) == 0);
    return ds;
}

static int queue(void) {
    int id = msgget(KEY, 0);
    CHECK(id >= 0);
    return id;
}

/* 2000 here is 70000 there, and so it owns the queue. */
static void owner(void) {
    int id = queue();
    struct msqid_ds ds = status(id);
    CHECK(ds.msg_perm.uid == 2000 && ds.msg_perm.gid == 2000);
    CHECK(ds.msg_perm.cuid == 65534); /* root, who is nobody here */
    ds.msg_perm.uid = 2001;
    GIVES(msgctl(id, IPC_SET, &ds), 0);
    FAILS(msgctl(id, IPC_SET, &ds), EPERM);
}

/* 2001 here is 70001 there; gives the queue to somebody else. */
static void heir(void) {
    int id = queue();
    struct msqid_ds ds = status(id);
    CHECK(ds.msg_perm.uid == 2001);
    ds.msg_perm.uid = 3000;
    FAILS(msgctl(id, IPC_SET, &ds), EINVAL); /* nobody there */
    ds.msg_perm.uid = 2000;
    GIVES(msgctl(id, IPC_SET, &ds), 0);
    int own = msgget(IPC_PRIVATE, 0600);
    CHECK(own >= 0 && status(own).msg_perm.cuid == 2001);
    GIVES(msgctl(own, IPC_RMID, NULL), 0);
}

/* Without a map 2000 is a stranger. */
static void stranger(void) {
    FAILS(msgctl(queue(), IPC_STAT, &(struct msqid_ds){0}), EACCES);
    FAILS(msgget(KEY, 0600), EACCES);
}

/* Who is in no line of the map is nobody in the pool: makes nothing, owns nothing. */
static void nobody(void) {
    FAILS(msgget(IPC_PRIVATE, 0600), EOVERFLOW);
    FAILS(semget(IPC_PRIVATE, 1, 0600), EOVERFLOW);
    FAILS(shmget(IPC_PRIVATE, 1, 0600), EOVERFLOW);
    FAILS(msgget(KEY, 0600), EACCES);
    FAILS(msgctl(queue(), IPC_RMID, NULL), EPERM);
}

/* By its group, one of many: 5000 here is 70000 there. */
static void member(void) {
    struct msqid_ds ds = status(queue());
    CHECK(ds.msg_perm.gid == 5000);
    FAILS(msgctl(queue(), IPC_RMID, NULL), EPERM);
}

static void mistaken(void) {
    const char *(*last_error)(void) = (const char *(*)(void))dlsym(RTLD_DEFAULT, "vshm_last_error");
    CHECK(last_error != NULL);
    FAILS(msgget(KEY, 0), EINVAL);
    CHECK(strstr(last_error(), "VSHMEM_UID_MAP") != NULL);
}

static const struct part {
    const char *name;
    void (*run)(void);
    uid_t uid;
    gid_t gid, group; /* group: a supplementary one; 0: none */
    uid_t owner;      /* of the queue, as the pool calls it */
    mode_t mode;
    const char *uid_map, *gid_map;
} parts[] = {
    {"owner", owner, 2000, 2000, 0, 70000, 0600, "2000 70000 2", "2000 70000 1"},
    {"heir", heir, 2001, 2000, 0, 70001, 0600, "2000 70000 2", "2000 70000 1"},
    {"stranger", stranger, 2000, 2000, 0, 70000, 0600, NULL, NULL},
    {"nobody", nobody, 2000, 2000, 0, 70000, 0600, "0 0 1", NULL},
    {"nobody's group", nobody, 2000, 2000, 0, 70000, 0600, NULL, "0 0 1"},
    {"member", member, 2000, 2000, 5000, 70000, 0640, NULL, "2000 2000 1,5000 70000 1"},
    {"no member", stranger, 2000, 2000, 5000, 70000, 0640, NULL, NULL},
    {"mistaken", mistaken, 2000, 2000, 0, 70000, 0600, "2000", NULL},
};
#define PARTS (sizeof parts / sizeof *parts)

static void become(const struct part *part, char *program) {
    if (part->uid_map)
        setenv("VSHMEM_UID_MAP", part->uid_map, 1);
    if (part->gid_map)
        setenv("VSHMEM_GID_MAP", part->gid_map, 1);
    CHECK(setgroups(part->group != 0, &part->group) == 0);
    CHECK(setresgid(part->gid, part->gid, part->gid) == 0);
    CHECK(setresuid(part->uid, part->uid, part->uid) == 0);
    char number[8];
    snprintf(number, sizeof number, "%d", (int)(part - parts));
    execl(program, program, number, (char *)NULL);
    CHECK(!"executed");
}

int main(int argc, char **argv) {
    if (argc > 1) {
        parts[strtoul(argv[1], NULL, 10) % PARTS].run();
        return 0;
    }
    if (geteuid() != 0) {
        puts("skipped: needs root");
        return 0;
    }
    int id = msgget(KEY, IPC_CREAT | 0600);
    CHECK(id >= 0);
    CHECK(chmod(getenv("VSHMEM_POOL"), 0666) == 0);
    struct msqid_ds ds = status(id);
    for (const struct part *part = parts; part < parts + PARTS; part++) {
        ds.msg_perm.uid = part->owner;
        ds.msg_perm.gid = 70000;
        ds.msg_perm.mode = part->mode;
        GIVES(msgctl(id, IPC_SET, &ds), 0);
        pid_t child = fork();
        if (child == 0)
            become(part, argv[0]);
        int ended;
        CHECK(waitpid(child, &ended, 0) == child);
        if (ended != 0) {
            fprintf(stderr, "%s failed\n", part->name);
            return 1;
        }
    }
    GIVES(msgctl(id, IPC_RMID, NULL), 0);
    return 0;
}
