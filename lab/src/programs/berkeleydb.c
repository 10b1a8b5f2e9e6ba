/* berkeleydb SECONDS: two processes put and get records of a Berkeley DB environment in System V
 * segments for so long; prints the nanoseconds of each operation of both together. */
#include <db.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PROCESSES = 2, RECORDS = 10000, BATCH = 100 };

static void must(int error, const char *what) {
    if (error == 0)
        return;
    fprintf(stderr, "berkeleydb: %s: %s\n", what, db_strerror(error));
    exit(1);
}

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static DB_ENV *environment(uint32_t more) {
    DB_ENV *env;
    must(db_env_create(&env, 0), "db_env_create");
    /* A key of this process group's own: the environment takes it and the next ones. */
    must(env->set_shm_key(env, 0x44000000 | (long)getpgrp() << 4), "set_shm_key");
    must(env->set_cachesize(env, 0, 16 << 20, 1), "set_cachesize");
    must(env->open(env, ".", DB_INIT_CDB | DB_INIT_MPOOL | DB_SYSTEM_MEM | more, 0600),
         "DB_ENV->open");
    return env;
}

static DB *records(DB_ENV *env) {
    DB *db;
    must(db_create(&db, env, 0), "db_create");
    must(db->open(db, NULL, "records", NULL, DB_BTREE, DB_CREATE, 0600), "DB->open");
    return db;
}

/* Puts one of a hundred, and gets the others; how many in all. */
static uint64_t work(uint64_t end, unsigned seed) {
    DB_ENV *env = environment(0);
    DB *db = records(env);
    uint64_t done = 0;
    for (; now() < end; done += BATCH)
        for (int i = 0; i < BATCH; i++) {
            uint32_t number = (uint32_t)rand_r(&seed) % RECORDS, got = 0;
            DBT key = {.data = &number, .size = sizeof number};
            DBT value = {
                .data = &got, .size = sizeof got, .ulen = sizeof got, .flags = DB_DBT_USERMEM};
            if (i == 0) {
                got = number;
                must(db->put(db, NULL, &key, &value, 0), "DB->put");
            } else {
                must(db->get(db, NULL, &key, &value, 0), "DB->get");
                must(got == number ? 0 : DB_SECONDARY_BAD, "DB->get of a wrong record");
            }
        }
    must(db->close(db, 0), "DB->close");
    must(env->close(env, 0), "DB_ENV->close");
    return done;
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: berkeleydb SECONDS\n");
        return 2;
    }
    setpgid(0, 0);
    uint64_t *done = mmap(NULL, PROCESSES * sizeof *done, PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    DB_ENV *env = environment(DB_CREATE);
    DB *db = records(env);
    for (uint32_t number = 0; number < RECORDS; number++) {
        DBT key = {.data = &number, .size = sizeof number}, value = key;
        must(db->put(db, NULL, &key, &value, 0), "DB->put");
    }
    must(db->close(db, 0), "DB->close");
    uint64_t begun = now(), end = begun + (uint64_t)(atof(argv[1]) * 1e9), all = 0;
    for (unsigned i = 0; i < PROCESSES; i++)
        if (fork() == 0) {
            done[i] = work(end, i + 1);
            _exit(0);
        }
    int status, failed = 0;
    for (unsigned i = 0; i < PROCESSES; i++)
        failed |= wait(&status) < 0 || status != 0;
    uint64_t took = now() - begun;
    for (unsigned i = 0; i < PROCESSES; i++)
        all += done[i];
    must(env->close(env, 0), "DB_ENV->close");
    must(db_env_create(&env, 0), "db_env_create");
    must(env->remove(env, ".", DB_FORCE), "DB_ENV->remove");
    if (failed || all == 0)
        return 1;
    printf("%.1f\n", (double)took / (double)all);
    return 0;
}
