//! Random scripts: proptest strategies that make steps which have a fair chance to mean something.

use crate::script::{Script, Step, SLOTS};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

/// Which calls a script is mostly made of: few kinds of IPC object at a time meet each other more often.
#[derive(Clone, Copy, Debug)]
pub enum Profile {
    Semaphores,
    Queues,
    Segments,
    Everything,
}

/// Scripts of one profile, of at most this many steps.
pub fn scripts(profile: Profile, length: usize) -> BoxedStrategy<Script> {
    let steps = prop::collection::vec(step(profile), 1..length);
    (2..=3usize, prop::bool::weighted(0.7), steps)
        .prop_map(move |(workers, observe, steps)| {
            let all = prologue(profile).into_iter().chain(steps).collect();
            Script::new(workers, observe, all)
        })
        .boxed()
}

/// IPC objects to begin with, so that not most of a script is spent on errors.
fn prologue(profile: Profile) -> Vec<Step> {
    let sem = ["sem0 = semget IPC_PRIVATE 3 0666", "sem1 = semget K0 1 IPC_CREAT|0640"];
    let msg = ["msg0 = msgget IPC_PRIVATE 0666", "msg1 = msgget K0 IPC_CREAT|0640"];
    let shm = ["shm0 = shmget IPC_PRIVATE 5000 0666", "shm1 = shmget K0 4096 IPC_CREAT|0640"];
    let commands: Vec<&str> = match profile {
        Profile::Semaphores => sem.to_vec(),
        Profile::Queues => msg.to_vec(),
        Profile::Segments => shm.to_vec(),
        Profile::Everything => [sem[0], msg[0], shm[0]].to_vec(),
    };
    commands.into_iter().map(|command| Step::call(0, command)).collect()
}

fn step(profile: Profile) -> BoxedStrategy<Step> {
    let calls = match profile {
        Profile::Semaphores => semaphore_call(),
        Profile::Queues => queue_call(),
        Profile::Segments => segment_call(),
        Profile::Everything => prop_oneof![semaphore_call(), queue_call(), segment_call()].boxed(),
    };
    prop_oneof![
        20 => (0..SLOTS, calls).prop_map(|(worker, command)| Step::call(worker, &command)),
        3 => process_step(),
    ]
    .boxed()
}

fn process_step() -> BoxedStrategy<Step> {
    let slot = 0..SLOTS;
    let identity =
        select(vec!["euid 1001", "euid 1002", "egid 1001", "egid 0", "euid 0", "groups 1001", "groups"]);
    prop_oneof![
        3 => slot.clone().prop_map(Step::Kill),
        2 => slot.clone().prop_map(Step::Exit),
        6 => slot.clone().prop_map(Step::Spawn),
        3 => (slot.clone(), slot.clone()).prop_map(|(parent, child)| Step::Fork { parent, child }),
        2 => slot.clone().prop_map(Step::Exec),
        3 => slot.clone().prop_map(Step::Signal),
        1 => slot.clone().prop_map(Step::IgnoredSignal),
        3 => (slot, identity).prop_map(|(worker, command)| Step::call(worker, command)),
    ]
    .boxed()
}

/// Any combination of some flags, joined for a script; few of them most of the time.
fn flags(of: &'static [&'static str]) -> BoxedStrategy<String> {
    subsequence(of, 0..=of.len())
        .prop_map(|chosen| if chosen.is_empty() { "0".to_owned() } else { chosen.join("|") })
        .boxed()
}

fn pick(of: &'static [&'static str]) -> BoxedStrategy<&'static str> {
    select(of).boxed()
}

fn key() -> BoxedStrategy<&'static str> {
    pick(&["IPC_PRIVATE", "K0", "K1", "K2"])
}

fn creation_flags() -> BoxedStrategy<String> {
    let mode = pick(&["0600", "0666", "0640", "0444", "0222", "0", "0060", "0006", "0777"]);
    let how = pick(&["IPC_CREAT", "IPC_CREAT", "IPC_CREAT|IPC_EXCL", "IPC_EXCL", "0"]);
    (how, mode).prop_map(|(how, mode)| format!("{how}|{mode}")).boxed()
}

fn owner() -> BoxedStrategy<String> {
    let user = pick(&["0", "1001", "1002", "-1"]);
    let mode = pick(&["0600", "0666", "0640", "0444", "0", "07777", "0060"]);
    (user.clone(), user, mode).prop_map(|(uid, gid, mode)| format!("{uid} {gid} {mode}")).boxed()
}

fn name(kind: &'static str) -> BoxedStrategy<String> {
    prop_oneof![
        12 => Just(format!("{kind}0")),
        6 => Just(format!("{kind}1")),
        2 => Just(format!("{kind}2")),
        1 => select(vec!["-1", "2147483647", "-2147483648"]).prop_map(str::to_owned),
    ]
    .boxed()
}

fn semaphore_call() -> BoxedStrategy<String> {
    let number = || prop_oneof![15 => 0..3i32, 1 => Just(3), 1 => Just(-1), 1 => Just(40000)];
    let get = (0..3, key(), pick(&["1", "2", "3", "0", "-1", "5", "32000", "32001"]), creation_flags())
        .prop_map(|(slot, key, count, flags)| format!("sem{slot} = semget {key} {count} {flags}"));
    let set_value =
        (name("sem"), number(), pick(&["0", "1", "2", "3", "7", "32767", "32766", "32768", "-1"]))
            .prop_map(|(id, number, value)| format!("semctl {id} {number} SETVAL {value}"));
    let set_all = (name("sem"), prop::collection::vec(pick(&["0", "1", "2", "5", "32767", "40000"]), 3))
        .prop_map(|(id, values)| format!("semctl {id} 0 SETALL {}", values.join(" ")));
    let ask = (
        name("sem"),
        number(),
        pick(&["GETVAL", "GETPID", "GETNCNT", "GETZCNT", "GETALL", "IPC_STAT", "99"]),
    )
        .prop_map(|(id, number, command)| format!("semctl {id} {number} {command}"));
    let set = (name("sem"), owner()).prop_map(|(id, owner)| format!("semctl {id} 0 IPC_SET {owner}"));
    let remove = name("sem").prop_map(|id| format!("semctl {id} 0 IPC_RMID"));
    let general = pick(&[
        "semctl 0 0 IPC_INFO",
        "semctl 0 0 SEM_INFO",
        "semscan SEM_STAT",
        "semscan SEM_STAT_ANY",
        "semctl sem0 0 IPC_STAT fault",
        "semctl sem0 0 GETALL fault",
        "semctl sem0 0 SETALL fault",
        "semctl sem0 0 IPC_SET fault",
        "semop sem0 inf fault",
        "semop sem0 fault 0:1",
        "semctl -1 0 SEM_STAT",
        "semctl 999999 0 SEM_STAT",
    ])
    .prop_map(str::to_owned);
    prop_oneof![
        4 => get,
        20 => operation(),
        3 => set_value,
        2 => set_all,
        3 => ask,
        1 => set,
        1 => remove,
        2 => general,
    ]
    .boxed()
}

fn operation() -> BoxedStrategy<String> {
    let number = prop_oneof![10 => 0..2i32, 5 => Just(2), 1 => Just(3), 1 => Just(32000)];
    let amount = prop_oneof![
        8 => -2..=2i32,
        3 => -4..=4i32,
        1 => select(vec![32767, -32767, -32768, 32766]),
    ];
    let flags = pick(&["0", "0", "0", "SEM_UNDO", "SEM_UNDO", "IPC_NOWAIT", "IPC_NOWAIT|SEM_UNDO", "01"]);
    let single =
        (number, amount, flags).prop_map(|(number, amount, flags)| format!("{number}:{amount}:{flags}"));
    let list = prop_oneof![
        10 => prop::collection::vec(single.clone(), 1),
        8 => prop::collection::vec(single, 2..5),
        1 => Just(vec![]),
        1 => select(vec!["0:0*500", "0:0*501", "0:1:SEM_UNDO*3"]).prop_map(|word| vec![word.to_owned()]),
    ];
    let timeout = prop_oneof![
        16 => Just("inf"),
        3 => Just("null"),
        2 => Just("100000"),
        1 => Just("0"),
        1 => Just("12"),
        1 => Just("bad"),
        1 => Just("negative"),
    ];
    (name("sem"), timeout, list)
        .prop_map(|(id, timeout, list)| format!("semop {id} {timeout} {}", list.join(" ")))
        .boxed()
}

fn queue_call() -> BoxedStrategy<String> {
    let get = (0..3, key(), creation_flags())
        .prop_map(|(slot, key, flags)| format!("msg{slot} = msgget {key} {flags}"));
    let mtype = prop_oneof![
        12 => (1..5i64).prop_map(|n| n.to_string()),
        2 => select(vec!["0", "-1", "LONG_MAX", "LONG_MIN", "4294967297"]).prop_map(str::to_owned),
    ];
    let size = prop_oneof![
        8 => select(vec!["0", "1", "7", "8", "9", "64", "100"]),
        4 => select(vec!["1000", "4000", "4048", "4049", "8000", "8192"]),
        1 => select(vec!["8193", "-1", "100000"]),
    ];
    let send = (name("msg"), mtype, size.clone(), 0..250u8, pick(&["0", "IPC_NOWAIT", "0", "MSG_NOERROR"]))
        .prop_map(|(id, mtype, size, seed, flags)| format!("msgsnd {id} {mtype} {size} {seed} {flags}"));
    let wanted = prop_oneof![
        6 => Just("0".to_owned()),
        6 => (1..5i64).prop_map(|n| n.to_string()),
        6 => (1..5i64).prop_map(|n| (-n).to_string()),
        1 => select(vec!["LONG_MIN", "LONG_MAX", "INT_MIN"]).prop_map(str::to_owned),
    ];
    let room = prop_oneof![10 => Just("8192"), 3 => size];
    let how = prop_oneof![
        6 => Just("0".to_owned()),
        6 => Just("IPC_NOWAIT".to_owned()),
        5 => flags(&["IPC_NOWAIT", "MSG_NOERROR", "MSG_EXCEPT"]),
        3 => flags(&["IPC_NOWAIT", "MSG_NOERROR", "MSG_EXCEPT", "MSG_COPY"]),
        2 => Just("MSG_COPY|IPC_NOWAIT".to_owned()),
    ];
    let receive = (name("msg"), room, wanted, how)
        .prop_map(|(id, room, wanted, how)| format!("msgrcv {id} {room} {wanted} {how}"));
    let set =
        (name("msg"), owner(), pick(&["0", "1", "100", "1000", "8192", "16384", "16385", "100000", "-1"]))
            .prop_map(|(id, owner, bytes)| format!("msgctl {id} IPC_SET {owner} {bytes}"));
    let ask = (name("msg"), pick(&["IPC_STAT", "99", "IPC_RMID"]))
        .prop_map(|(id, command)| format!("msgctl {id} {command}"));
    let general = pick(&[
        "msgctl 0 IPC_INFO",
        "msgctl 0 MSG_INFO",
        "msgscan MSG_STAT",
        "msgscan MSG_STAT_ANY",
        "msgctl msg0 IPC_STAT fault",
        "msgctl msg0 IPC_SET fault",
        "msgsnd msg0 fault 8 1 0",
        "msgrcv msg0 fault 8 0 IPC_NOWAIT",
        "msgctl -1 MSG_STAT",
        "msgctl 999999 MSG_STAT",
    ])
    .prop_map(str::to_owned);
    prop_oneof![3 => get, 14 => send, 14 => receive, 3 => set, 2 => ask, 2 => general].boxed()
}

fn segment_call() -> BoxedStrategy<String> {
    let size = pick(&[
        "4096",
        "1",
        "5000",
        "0",
        "100000",
        "-1",
        "8192",
        "9223372036854775808",
        "18446744073692774399",
    ]);
    let get = (0..3, key(), size, creation_flags(), pick(&["0", "SHM_NORESERVE"]))
        .prop_map(|(slot, key, size, flags, more)| format!("shm{slot} = shmget {key} {size} {flags}|{more}"));
    let own_place = || {
        prop_oneof![
            8 => (0..4).prop_map(|n| format!("fix{n}")),
            2 => (0..2, select(vec![1, 4096, 4097, 12288])).prop_map(|(n, offset)| format!("fix{n}+{offset}")),
        ]
    };
    let place = || {
        prop_oneof![
            8 => Just("null".to_owned()),
            10 => own_place(),
            2 => (0..3).prop_map(|n| format!("a{n}")),
        ]
    };
    let how = prop_oneof![
        10 => Just("0".to_owned()),
        4 => Just("SHM_RDONLY".to_owned()),
        4 => flags(&["SHM_RDONLY", "SHM_RND", "SHM_EXEC"]),
    ];
    let attach = (0..3, name("shm"), place(), how)
        .prop_map(|(slot, id, place, how)| format!("shmat a{slot} {id} {place} {how}"));
    // Elsewhere it could replace the worker's own memory.
    let replace = (0..3, name("shm"), own_place(), flags(&["SHM_RDONLY", "SHM_RND"]))
        .prop_map(|(slot, id, place, how)| format!("shmat a{slot} {id} {place} SHM_REMAP|{how}"));
    // What comes after a segment is known only where scripts chose the place.
    let at = || {
        prop_oneof![
            4 => (0..3, select(vec!["", "+1", "+100", "+4090"])).prop_map(|(n, offset)| format!("a{n}{offset}")),
            1 => (0..4, select(vec![0, 4095, 4096, 8190])).prop_map(|(n, offset)| format!("fix{n}+{offset}")),
        ]
    };
    let detach = prop_oneof![
        10 => (0..3).prop_map(|n| format!("a{n}")),
        2 => place(),
        1 => select(vec!["null", "bad"]).prop_map(str::to_owned),
    ]
    .prop_map(|place| format!("shmdt {place}"));
    let poke = (at(), 1..6, 1..250).prop_map(|(at, length, byte)| format!("poke {at} {length} {byte}"));
    let peek = (at(), 1..6).prop_map(|(at, length)| format!("peek {at} {length}"));
    let set = (name("shm"), owner()).prop_map(|(id, owner)| format!("shmctl {id} IPC_SET {owner}"));
    let ask = (name("shm"), pick(&["IPC_STAT", "99", "IPC_RMID", "IPC_RMID", "SHM_LOCK", "SHM_UNLOCK"]))
        .prop_map(|(id, command)| format!("shmctl {id} {command}"));
    let general = pick(&[
        "shmctl 0 IPC_INFO",
        "shmctl 0 SHM_INFO",
        "shmscan SHM_STAT",
        "shmscan SHM_STAT_ANY",
        "shmctl shm0 IPC_STAT fault",
        "shmctl shm0 IPC_SET fault",
        "shmctl -1 SHM_STAT",
        "shmctl 999999 SHM_STAT",
    ])
    .prop_map(str::to_owned);
    prop_oneof![5 => get, 10 => attach, 2 => replace, 6 => detach, 6 => poke, 6 => peek, 2 => set, 4 => ask, 2 => general].boxed()
}
