//! Semaphore commands.

use crate::{check, errno, parse, Args, Reply};
use libc::{c_int, c_ushort, sembuf, semid_ds};

extern "C" {
    // The libc crate does not have it.
    fn semtimedop(id: c_int, list: *mut sembuf, count: usize, timeout: *const libc::timespec) -> c_int;
}

/// The fourth argument of semctl.
#[repr(C)]
union Semun {
    val: c_int,
    pointer: *mut libc::c_void,
}

/// The libc crate does not have it.
const SEM_STAT_ANY: c_int = 20;

/// An address at which nothing is mapped.
const BAD: *mut libc::c_void = 8 as *mut libc::c_void;

fn semctl(id: c_int, number: c_int, command: c_int, argument: Semun) -> Result<i32, i32> {
    // SAFETY: each caller passes the kind of argument that the command takes, or an address that
    // the call must refuse.
    let result = unsafe { libc::semctl(id, number, command, argument) };
    check(result.into()).map(|value| value as i32)
}

pub fn get(args: &mut Args) -> Reply {
    let (key, count, flags) = (args.int(), args.int(), args.int());
    // SAFETY: no memory is passed.
    let id = check(unsafe { libc::semget(key, count, flags) }.into())?;
    Ok(format!("id=!{id}"))
}

/// `NUMBER:OPERATION:FLAGS`, optionally `*TIMES`.
fn parse_operations(words: &[&str]) -> Vec<sembuf> {
    let mut operations = Vec::new();
    for word in words {
        let (one, times) = word.split_once('*').unwrap_or((word, "1"));
        let parts: Vec<i64> = one.split(':').map(|part| parse(part).expect("a number")).collect();
        let operation = sembuf {
            sem_num: parts[0] as u16,
            sem_op: parts[1] as i16,
            sem_flg: parts.get(2).copied().unwrap_or(0) as i16,
        };
        operations.extend((0..times.parse().expect("a count")).map(|_| operation));
    }
    operations
}

/// Whether this worker is to forget SEM_UNDO: a deviation that the harness injects to see that it
/// finds it.
pub fn drops_undo() -> bool {
    std::env::var_os("WORKER_DROPS_UNDO").is_some()
}

/// `semop ID TIMEOUT OPERATION...`; the timeout is `inf` (semop), `null`, `bad`, `negative`, `fault`, or
/// milliseconds (semtimedop). A list of the one word `fault` is an address where nothing is.
pub fn operate(drop_undo: bool, args: &mut Args) -> Reply {
    let (id, timeout, words) = (args.int(), args.word(), args.rest());
    let faulty = words.first() == Some(&"fault");
    let mut operations = if faulty { Vec::new() } else { parse_operations(&words) };
    if drop_undo {
        operations.iter_mut().for_each(|operation| operation.sem_flg &= !(libc::SEM_UNDO as i16));
    }
    let count = if faulty { 1 } else { operations.len() };
    let list = if faulty { BAD.cast() } else { operations.as_mut_ptr() };
    let spec = |tv_sec, tv_nsec| libc::timespec { tv_sec, tv_nsec };
    let limit = match timeout {
        "bad" => spec(0, 1_000_000_000),
        "negative" => spec(-1, 0),
        "inf" | "null" | "fault" => spec(0, 0),
        text => {
            let ms = parse(text).expect("milliseconds");
            spec(ms / 1000, ms % 1000 * 1_000_000)
        }
    };
    // SAFETY: the list holds `count` operations and the timeout lives across the call; where an
    // address is bad, the call must refuse it.
    let result = unsafe {
        match timeout {
            "inf" => libc::semop(id, list, count),
            "null" => semtimedop(id, list, count, std::ptr::null()),
            "fault" => semtimedop(id, list, count, BAD.cast()),
            _ => semtimedop(id, list, count, &limit),
        }
    };
    check(result.into()).map(|_| String::new())
}

fn describe(ds: &semid_ds) -> String {
    let perm = &ds.sem_perm;
    format!(
        "key={:#x} uid={} gid={} cuid={} cgid={} mode={:#o} nsems={} otime=@{} ctime=@{}",
        perm.__key,
        perm.uid,
        perm.gid,
        perm.cuid,
        perm.cgid,
        perm.mode,
        ds.sem_nsems,
        ds.sem_otime,
        ds.sem_ctime
    )
}

fn empty() -> semid_ds {
    // SAFETY: semid_ds is plain numbers; all zeros is a valid value.
    unsafe { std::mem::zeroed() }
}

fn pointer<T>(value: &mut T) -> Semun {
    Semun { pointer: std::ptr::from_mut(value).cast() }
}

fn read_all(id: c_int) -> Reply {
    let mut ds = empty();
    // Needs the same permission as GETALL, so a failure is the one to report.
    semctl(id, 0, libc::IPC_STAT, pointer(&mut ds))?;
    let mut values: Vec<c_ushort> = vec![0xdead; ds.sem_nsems as usize + 1];
    semctl(id, 0, libc::GETALL, Semun { pointer: values.as_mut_ptr().cast() })?;
    let guard = values.pop();
    assert_eq!(guard, Some(0xdead), "GETALL wrote past the last semaphore");
    // Large sets differ in their beginning only.
    let end = values.iter().rposition(|&value| value != 0).map_or(0, |last| last + 1);
    Ok(format!("values={:?}+{}", &values[..end], values.len() - end).replace(' ', ""))
}

/// Vshmem copies arrays only of a process that it has told how long that is. One of both answers: the first
/// needs permission to read, the second that the process was told of no other set at the same index.
fn be_told(id: c_int) {
    let _ = semctl(id, 0, libc::IPC_STAT, pointer(&mut empty()));
    let _ = semctl(id & 0x1ffff, 0, SEM_STAT_ANY, pointer(&mut empty()));
}

/// `semctl ID NUMBER COMMAND [ARGUMENTS | fault]`
pub fn control(args: &mut Args) -> Reply {
    let (id, number, command) = (args.int(), args.int(), args.int());
    if matches!(command, libc::GETALL | libc::SETALL) {
        be_told(id);
    }
    if args.take("fault") {
        return semctl(id, number, command, Semun { pointer: BAD }).map(|value| format!("value={value}"));
    }
    match command {
        libc::GETALL => read_all(id),
        libc::SETALL => {
            let mut values: Vec<c_ushort> =
                args.rest().iter().map(|word| parse(word).expect("a value") as u16).collect();
            // The call reads as many as the set has: a longer buffer than any set in a script.
            values.resize(values.len().max(32_000), 0);
            semctl(id, number, command, Semun { pointer: values.as_mut_ptr().cast() }).map(|_| String::new())
        }
        libc::SETVAL => {
            semctl(id, number, command, Semun { val: args.int() }).map(|value| format!("value={value}"))
        }
        libc::GETPID => semctl(id, number, command, Semun { val: 0 }).map(|pid| format!("pid=%{pid}")),
        libc::IPC_STAT => {
            let mut ds = empty();
            semctl(id, number, command, pointer(&mut ds))?;
            Ok(describe(&ds))
        }
        libc::IPC_SET => {
            let mut ds = empty();
            (ds.sem_perm.uid, ds.sem_perm.gid) = (args.int() as u32, args.int() as u32);
            ds.sem_perm.mode = args.int() as _;
            semctl(id, number, command, pointer(&mut ds)).map(|value| format!("value={value}"))
        }
        libc::IPC_INFO | libc::SEM_INFO => info(command),
        _ => semctl(id, number, command, Semun { val: 0 }).map(|value| format!("value={value}")),
    }
}

fn info(command: c_int) -> Reply {
    // SAFETY: seminfo is plain numbers.
    let mut info: libc::seminfo = unsafe { std::mem::zeroed() };
    semctl(0, 0, command, pointer(&mut info))?;
    Ok(format!(
        "map={} mni={} mns={} mnu={} msl={} opm={} ume={} usz={} vmx={} aem={}",
        info.semmap,
        info.semmni,
        info.semmns,
        info.semmnu,
        info.semmsl,
        info.semopm,
        info.semume,
        info.semusz,
        info.semvmx,
        info.semaem
    ))
}

/// `semscan COMMAND`: what SEM_STAT or SEM_STAT_ANY say of every index.
pub fn scan(args: &mut Args) -> Reply {
    let command = args.int();
    // SAFETY: seminfo is plain numbers.
    let mut info: libc::seminfo = unsafe { std::mem::zeroed() };
    let highest = semctl(0, 0, libc::SEM_INFO, pointer(&mut info))?;
    let mut lines = Vec::new();
    for index in 0..=highest {
        let mut ds = empty();
        match semctl(index, 0, command, pointer(&mut ds)) {
            Ok(id) => lines.push(format!("id=!{id} {}", describe(&ds))),
            Err(libc::EINVAL) => {} // a hole
            Err(errno) => lines.push(format!("err={errno}")),
        }
    }
    Ok(lines.join(" ; "))
}

/// Everything there is to know of a set.
pub fn dump(args: &mut Args) -> Reply {
    let id = args.int();
    let mut ds = empty();
    semctl(id, 0, libc::IPC_STAT, pointer(&mut ds))?;
    let mut text = format!("{} {}", describe(&ds), read_all(id)?);
    // All that scripts use; asking for each of 32000 would take its time.
    for number in 0..(ds.sem_nsems as c_int).min(8) {
        let ask = |command| semctl(id, number, command, Semun { val: 0 }).unwrap_or_else(|_| -errno());
        text += &format!(
            " {number}:(pid=%{} ncnt={} zcnt={})",
            ask(libc::GETPID),
            ask(libc::GETNCNT),
            ask(libc::GETZCNT)
        );
    }
    Ok(text)
}
