/* Message queues, as msgop(2) and msgctl(2) describe them. */
#include "tests.h"

enum { LARGE = 8192 };

struct message {
    long type;
    char text[LARGE];
};

static int new_queue(void) { return (int)OK(msgget(IPC_PRIVATE, 0600)); }

static void remove_queue(int id) { OK(msgctl(id, IPC_RMID, NULL)); }

static struct msqid_ds state(int id) {
    struct msqid_ds ds;
    OK(msgctl(id, IPC_STAT, &ds));
    return ds;
}

static void put(int id, long type, size_t size, char fill) {
    struct message message = {.type = type};
    memset(message.text, fill, size);
    OK(msgsnd(id, &message, size, 0));
}

/* Receives a message that must have this type, size and content. */
static void expect(int id, long wanted, long type, size_t size, char fill) {
    struct message message;
    memset(&message, 0x55, sizeof message);
    EQUAL(OK(msgrcv(id, &message, LARGE, wanted, IPC_NOWAIT)), size);
    EQUAL(message.type, type);
    for (size_t i = 0; i < size; i++)
        EQUAL(message.text[i], fill);
    CHECK(size == LARGE || message.text[size] == 0x55);
}

static void reports_limits(void) {
    struct msginfo info, used;
    OK(msgctl(0, IPC_INFO, (struct msqid_ds *)&info));
    CHECK(info.msgmax > 0 && info.msgmnb > 0 && info.msgmni > 0);
    int id = new_queue();
    put(id, 1, 100, 'a');
    put(id, 1, 50, 'a');
    OK(msgctl(0, MSG_INFO, (struct msqid_ds *)&used));
    EQUAL(used.msgpool, 1);
    EQUAL(used.msgmap, 2);
    EQUAL(used.msgtql, 150);
    EQUAL(state(id).msg_qbytes, info.msgmnb);
    remove_queue(id);
}

static void keeps_limits(void) {
    struct msginfo info;
    OK(msgctl(0, IPC_INFO, (struct msqid_ds *)&info));
    size_t most = (size_t)info.msgmax;
    struct message *message = calloc(1, sizeof *message + most);
    message->type = 1;
    int id = new_queue();
    FAILS(msgsnd(id, message, most + 1, 0), EINVAL);
    FAILS(msgsnd(id, message, (size_t)-1, 0), EINVAL);
    OK(msgsnd(id, message, most, 0));
    EQUAL(OK(msgrcv(id, message, most, 0, 0)), most);
    message->type = 0;
    FAILS(msgsnd(id, message, 1, 0), EINVAL);
    message->type = -1;
    FAILS(msgsnd(id, message, 1, 0), EINVAL);
    FAILS(msgrcv(id, message, (size_t)-1, 0, 0), EINVAL);
    free(message);
    remove_queue(id);
}

static void a_full_queue_refuses(void) {
    int id = new_queue();
    struct message message = {.type = 1};
    size_t total = 0, room = state(id).msg_qbytes;
    while (total + 1000 <= room) {
        put(id, 1, 1000, 'x');
        total += 1000;
    }
    FAILS(msgsnd(id, &message, 1000, IPC_NOWAIT), EAGAIN);
    OK(msgsnd(id, &message, room - total, IPC_NOWAIT));
    FAILS(msgsnd(id, &message, 1, IPC_NOWAIT), EAGAIN);
    EQUAL(state(id).__msg_cbytes, room);
    remove_queue(id);
}

static void every_size_arrives_whole(void) {
    int id = new_queue();
    for (size_t size = 0; size <= 300; size++) {
        put(id, 1 + (long)size, size, (char)size);
        expect(id, 0, 1 + (long)size, size, (char)size);
    }
    for (size_t size = 3900; size <= LARGE; size += 61) {
        put(id, 5, size, (char)size);
        expect(id, 0, 5, size, (char)size);
    }
    put(id, 5, LARGE, 'z');
    expect(id, 0, 5, LARGE, 'z');
    remove_queue(id);
}

static void selects_by_type(void) {
    int id = new_queue();
    for (int i = 0; i < 60; i++)
        put(id, 1 + i % 6, 10, (char)i);
    expect(id, -3, 1, 10, 0);
    expect(id, 4, 4, 10, 3);
    expect(id, 0, 2, 10, 1);
    for (int i = 6; i < 60; i += 6)
        expect(id, -6, 1, 10, (char)i);
    for (int i = 7; i < 60; i += 6)
        expect(id, -6, 2, 10, (char)i);
    struct message message;
    FAILS(msgrcv(id, &message, LARGE, 99, IPC_NOWAIT), ENOMSG);
    FAILS(msgrcv(id, &message, LARGE, -2, IPC_NOWAIT), ENOMSG);
    EQUAL(OK(msgrcv(id, &message, LARGE, 3, IPC_NOWAIT | MSG_EXCEPT)), 10);
    EQUAL(message.type, 5);
    remove_queue(id);
}

static void refuses_bad_addresses(void) {
    int id = new_queue();
    void *bad = (void *)8;
    FAILS(msgsnd(id, bad, 10, 0), EFAULT);
    put(id, 1, 10, 'a');
    FAILS(msgctl(id, IPC_STAT, bad), EFAULT);
    FAILS(msgctl(id, IPC_SET, bad), EFAULT);
    FAILS(msgctl(0, MSG_INFO, bad), EFAULT);
    FAILS(msgrcv(id, bad, 10, 0, 0), EFAULT);
    remove_queue(id);
}

static void is_interrupted_by_a_signal(void) {
    int id = new_queue();
    struct message message = {.type = 1};
    handle(SIGALRM, do_nothing);
    alarm(1);
    FAILS(msgrcv(id, &message, LARGE, 0, 0), EINTR);
    put(id, 1, LARGE, 'a');
    put(id, 1, LARGE, 'a');
    alarm(1);
    FAILS(msgsnd(id, &message, LARGE, 0), EINTR);
    EQUAL(state(id).msg_qnum, 2);
    remove_queue(id);
}

static void receives_one(void *id) {
    struct message message;
    EQUAL(OK(msgrcv(*(int *)id, &message, LARGE, 7, 0)), 33);
    EQUAL(message.type, 7);
    EQUAL(message.text[32], 'q');
}

static void a_waiting_receiver_gets_the_message(void) {
    int id = new_queue();
    pid_t pid = child(receives_one, &id);
    sleeps(pid);
    put(id, 6, 33, 'p');
    put(id, 7, 33, 'q');
    joined(pid, 0);
    struct msqid_ds ds = state(id);
    EQUAL(ds.msg_qnum, 1);
    EQUAL(ds.msg_lrpid, pid);
    EQUAL(ds.msg_lspid, getpid());
    remove_queue(id);
}

static void sends_one(void *id) { put(*(int *)id, 3, LARGE, 's'); }

static void a_waiting_sender_goes_on_when_there_is_room(void) {
    int id = new_queue();
    put(id, 1, LARGE, 'a');
    put(id, 2, LARGE, 'b');
    pid_t pid = child(sends_one, &id);
    sleeps(pid);
    EQUAL(state(id).msg_qnum, 2);
    expect(id, 0, 1, LARGE, 'a');
    joined(pid, 0);
    expect(id, 0, 2, LARGE, 'b');
    expect(id, 0, 3, LARGE, 's');
    remove_queue(id);
}

static void expects_removal(void *id) {
    struct message message;
    FAILS(msgrcv(*(int *)id, &message, LARGE, 0, 0), EIDRM);
}

static void removal_ends_waits(void) {
    int id = new_queue();
    pid_t pids[3];
    for (int i = 0; i < 3; i++)
        pids[i] = child(expects_removal, &id);
    for (int i = 0; i < 3; i++)
        sleeps(pids[i]);
    remove_queue(id);
    for (int i = 0; i < 3; i++)
        joined(pids[i], 0);
}

static void waits_for_100_bytes(void *id) {
    struct message message;
    EQUAL(msgrcv(*(int *)id, &message, LARGE, 0, 0), 100);
    EQUAL(message.type, 7);
}

/* Who waits for a message has it as soon as it is sent, even if the queue is removed before it
 * runs. */
static void a_message_for_a_waiting_receiver_outlives_the_queue(void) {
    for (int round = 0; round < 100; round++) {
        int id = new_queue();
        pid_t pid = child(waits_for_100_bytes, &id);
        sleeps(pid);
        put(id, 7, 100, 'x');
        remove_queue(id);
        joined(pid, 0);
    }
    struct msginfo used;
    OK(msgctl(0, MSG_INFO, (struct msqid_ds *)&used));
    EQUAL(used.msgpool, 0);
}

static void keeps_many_queues_apart(void) {
    enum { COUNT = 1000 };
    int ids[COUNT];
    for (int i = 0; i < COUNT; i++) {
        ids[i] = new_queue();
        put(ids[i], 1 + i, (size_t)(i % 200), (char)i);
    }
    for (int i = 0; i < COUNT; i++) {
        expect(ids[i], 0, 1 + i, (size_t)(i % 200), (char)i);
        remove_queue(ids[i]);
    }
    struct msginfo used;
    OK(msgctl(0, MSG_INFO, (struct msqid_ds *)&used));
    EQUAL(used.msgpool, 0);
    EQUAL(used.msgmap, 0);
}

static void as_many_queues_as_allowed_and_no_more(void) {
    struct msginfo info;
    OK(msgctl(0, IPC_INFO, (struct msqid_ds *)&info));
    if (info.msgmni > 40000)
        skip("more queues are allowed here than are quickly made");
    int *ids = calloc((size_t)info.msgmni, sizeof *ids);
    for (int i = 0; i < info.msgmni; i++)
        ids[i] = new_queue();
    FAILS(msgget(IPC_PRIVATE, 0600), ENOSPC);
    put(ids[info.msgmni - 1], 1, 10, 'x');
    expect(ids[info.msgmni - 1], 0, 1, 10, 'x');
    for (int i = 0; i < info.msgmni; i++)
        remove_queue(ids[i]);
    free(ids);
}

static void one_queue_takes_many_empty_messages(void) {
    int id = new_queue();
    size_t count = state(id).msg_qbytes;
    struct message message = {.type = 1};
    for (size_t i = 0; i < count; i++)
        OK(msgsnd(id, &message, 0, IPC_NOWAIT));
    FAILS(msgsnd(id, &message, 0, IPC_NOWAIT), EAGAIN);
    EQUAL(state(id).msg_qnum, count);
    for (size_t i = 0; i < count; i++)
        EQUAL(OK(msgrcv(id, &message, 0, 0, IPC_NOWAIT)), 0);
    FAILS(msgrcv(id, &message, 0, 0, IPC_NOWAIT), ENOMSG);
    remove_queue(id);
}

/* Linux passes it through an int. */
static void a_limit_has_32_bits(void) {
    int id = new_queue();
    struct msqid_ds ds = state(id);
    msglen_t limit = ds.msg_qbytes;
    ds.msg_qbytes = (1ul << 33) + limit / 2;
    OK(msgctl(id, IPC_SET, &ds));
    EQUAL(state(id).msg_qbytes, limit / 2);
    ds.msg_qbytes = 1ul << 33;
    OK(msgctl(id, IPC_SET, &ds));
    EQUAL(state(id).msg_qbytes, 0);
    struct message message = {.type = 1};
    FAILS(msgsnd(id, &message, 0, IPC_NOWAIT), EAGAIN);
    remove_queue(id);
}

static void a_copy_looks_at_its_room_first(void) {
    int id = new_queue();
    struct message message;
    if (msgrcv(id, &message, 8, 0, MSG_COPY | IPC_NOWAIT) == -1 && errno == ENOSYS)
        skip("this kernel has no MSG_COPY");
    FAILS(msgrcv(id, NULL, 8, 0, MSG_COPY | IPC_NOWAIT), EFAULT);
    FAILS(msgrcv(id + 1, NULL, 8, 0, MSG_COPY | IPC_NOWAIT), EFAULT);
    FAILS(msgrcv(id, NULL, 8, 0, MSG_COPY | MSG_EXCEPT | IPC_NOWAIT), EINVAL);
    FAILS(msgrcv(id, NULL, 8, 0, IPC_NOWAIT), ENOMSG);
    remove_queue(id);
}

static void notes_times_and_pids(void) {
    time_t before = time(NULL) - 1;
    int id = new_queue();
    struct msqid_ds ds = state(id);
    EQUAL(ds.msg_stime, 0);
    EQUAL(ds.msg_rtime, 0);
    CHECK(ds.msg_ctime >= before && ds.msg_ctime <= time(NULL));
    EQUAL(ds.msg_lspid, 0);
    put(id, 1, 5, 'a');
    ds = state(id);
    CHECK(ds.msg_stime >= before && ds.msg_stime <= time(NULL));
    EQUAL(ds.__msg_cbytes, 5);
    EQUAL(ds.msg_lspid, getpid());
    expect(id, 0, 1, 5, 'a');
    ds = state(id);
    CHECK(ds.msg_rtime >= before && ds.msg_rtime <= time(NULL));
    EQUAL(ds.msg_lrpid, getpid());
    remove_queue(id);
}

/* An id's low bits are its index, so an id does, too. */
static void is_listed_by_its_id(void) {
    struct msqid_ds ds;
    const int first = (int)OK(msgget(IPC_PRIVATE, 0600)), id = (int)OK(msgget(IPC_PRIVATE, 0600));
    EQUAL(msgctl(id, MSG_STAT, &ds), id);
    EQUAL(msgctl(id, MSG_STAT_ANY, &ds), id);
    EQUAL(msgctl(first, MSG_STAT, &ds), first);
    FAILS(msgctl(-1, MSG_STAT, &ds), EINVAL);
    OK(msgctl(id, IPC_RMID, NULL));
    FAILS(msgctl(id, MSG_STAT, &ds), EINVAL);
    OK(msgctl(first, IPC_RMID, NULL));
}

/* The bit by which other processors' kernels tell the structures' versions apart (IPC_64). */
static void refuses_commands_with_a_bit_too_many(void) {
    struct msqid_ds ds;
    const int id = (int)OK(msgget(IPC_PRIVATE, 0600));
    FAILS(msgctl(id, IPC_STAT | 0x100, &ds), EINVAL);
    FAILS(msgctl(id, MSG_STAT | 0x100, &ds), EINVAL);
    FAILS(msgctl(id, IPC_INFO | 0x100, &ds), EINVAL);
    FAILS(msgctl(id, IPC_RMID | 0x100, NULL), EINVAL);
    OK(msgctl(id, IPC_RMID, NULL));
}

TESTS({"msg/reports_limits", reports_limits}, {"msg/keeps_limits", keeps_limits},
      {"msg/a_full_queue_refuses", a_full_queue_refuses},
      {"msg/every_size_arrives_whole", every_size_arrives_whole},
      {"msg/selects_by_type", selects_by_type},
      {"msg/refuses_bad_addresses", refuses_bad_addresses},
      {"msg/is_interrupted_by_a_signal", is_interrupted_by_a_signal},
      {"msg/a_waiting_receiver_gets_the_message", a_waiting_receiver_gets_the_message},
      {"msg/a_waiting_sender_goes_on_when_there_is_room",
       a_waiting_sender_goes_on_when_there_is_room},
      {"msg/removal_ends_waits", removal_ends_waits},
      {"msg/a_message_for_a_waiting_receiver_outlives_the_queue",
       a_message_for_a_waiting_receiver_outlives_the_queue},
      {"msg/keeps_many_queues_apart", keeps_many_queues_apart},
      {"msg/as_many_queues_as_allowed_and_no_more", as_many_queues_as_allowed_and_no_more},
      {"msg/one_queue_takes_many_empty_messages", one_queue_takes_many_empty_messages},
      {"msg/a_limit_has_32_bits", a_limit_has_32_bits},
      {"msg/a_copy_looks_at_its_room_first", a_copy_looks_at_its_room_first},
      {"msg/notes_times_and_pids", notes_times_and_pids},
      {"msg/is_listed_by_its_id", is_listed_by_its_id},
      {"msg/refuses_commands_with_a_bit_too_many", refuses_commands_with_a_bit_too_many})
