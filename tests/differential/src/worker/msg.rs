//! Message queue commands.

use crate::{check, Args, Reply};
use libc::{c_int, c_long, msqid_ds};

/// An address at which nothing is mapped.
const BAD: *mut libc::c_void = 8 as *mut libc::c_void;

/// A message as the calls want it: the type, then the text.
struct Message {
    words: Vec<c_long>,
}

impl Message {
    fn with_capacity(bytes: usize) -> Message {
        Message { words: vec![0x5a5a_5a5a_5a5a_5a5a; 2 + bytes.div_ceil(8)] }
    }

    fn text(&mut self) -> &mut [u8] {
        let bytes = (self.words.len() - 1) * 8;
        // SAFETY: the words after the first are initialised and belong to this message; any bytes
        // are valid.
        unsafe { std::slice::from_raw_parts_mut(self.words[1..].as_mut_ptr().cast(), bytes) }
    }

    fn pointer(&mut self) -> *mut libc::c_void {
        self.words.as_mut_ptr().cast()
    }
}

/// The byte at a position of a message with this seed.
fn pattern(seed: u8, position: usize) -> u8 {
    seed.wrapping_add((position % 251) as u8)
}

/// How a text is reported: its first byte, which is its seed, and whether the rest belongs to it.
fn describe_text(text: &[u8]) -> String {
    let Some(&seed) = text.first() else {
        return "text=empty".to_owned();
    };
    match text.iter().enumerate().find(|(position, &byte)| byte != pattern(seed, *position)) {
        None => format!("text={seed}"),
        Some((position, byte)) => format!("text={seed},but[{position}]={byte}"),
    }
}

pub fn get(args: &mut Args) -> Reply {
    let (key, flags) = (args.int(), args.int());
    // SAFETY: no memory is passed.
    let id = check(unsafe { libc::msgget(key, flags) }.into())?;
    Ok(format!("id=!{id}"))
}

/// `msgsnd ID TYPE SIZE SEED FLAGS`, or `msgsnd ID fault SIZE SEED FLAGS`
pub fn send(args: &mut Args) -> Reply {
    let id = args.int();
    let fault = args.take("fault");
    let mtype = if fault { 1 } else { args.number() };
    let (size, seed, flags) = (args.number(), args.number() as u8, args.int());
    let mut message = Message::with_capacity(size.clamp(0, 1 << 20) as usize);
    message.words[0] = mtype;
    message.text().iter_mut().enumerate().for_each(|(position, byte)| *byte = pattern(seed, position));
    let pointer = if fault { BAD } else { message.pointer() };
    // SAFETY: the message holds `size` bytes of text, or the size or the address is one that the
    // call must refuse.
    let result = unsafe { libc::msgsnd(id, pointer, size as usize, flags) };
    check(result.into()).map(|_| String::new())
}

/// `msgrcv ID SIZE TYPE FLAGS`, or `msgrcv ID fault SIZE TYPE FLAGS`
pub fn receive(args: &mut Args) -> Reply {
    let id = args.int();
    let fault = args.take("fault");
    let (size, mtype, flags) = (args.number(), args.number(), args.int());
    let mut message = Message::with_capacity(size.clamp(0, 1 << 20) as usize);
    message.words[0] = 0;
    let pointer = if fault { BAD } else { message.pointer() };
    // SAFETY: the message has room for `size` bytes of text, or the size or the address is one
    // that the call must refuse.
    let count = check(unsafe { libc::msgrcv(id, pointer, size as usize, mtype, flags) } as i64)?;
    let found = message.words[0];
    let text = message.text();
    let (body, rest) = text.split_at(count as usize);
    let touched = rest.iter().any(|&byte| byte != 0x5a);
    Ok(format!(
        "bytes={count} type={found} {}{}",
        describe_text(body),
        if touched { " wrote-past-the-end" } else { "" }
    ))
}

fn empty() -> msqid_ds {
    // SAFETY: msqid_ds is plain numbers; all zeros is a valid value.
    unsafe { std::mem::zeroed() }
}

fn describe(ds: &msqid_ds) -> String {
    let perm = &ds.msg_perm;
    format!(
        "key={:#x} uid={} gid={} cuid={} cgid={} mode={:#o} stime=@{} rtime=@{} ctime=@{} cbytes={} qnum={} qbytes={} lspid=%{} lrpid=%{}",
        perm.__key, perm.uid, perm.gid, perm.cuid, perm.cgid, perm.mode, ds.msg_stime, ds.msg_rtime, ds.msg_ctime,
        ds.__msg_cbytes, ds.msg_qnum, ds.msg_qbytes, ds.msg_lspid, ds.msg_lrpid
    )
}

fn msgctl(id: c_int, command: c_int, ds: *mut msqid_ds) -> Result<i32, i32> {
    // SAFETY: the callers pass a structure that is large enough for the command, or an address
    // that the call must refuse.
    check(unsafe { libc::msgctl(id, command, ds) }.into()).map(|value| value as i32)
}

/// The structure that IPC_INFO and MSG_INFO fill in.
#[repr(C)]
#[derive(Default)]
struct Info {
    msgpool: c_int,
    msgmap: c_int,
    msgmax: c_int,
    msgmnb: c_int,
    msgmni: c_int,
    msgssz: c_int,
    msgtql: c_int,
    msgseg: u16,
    spare: [u64; 16],
}

fn info(command: c_int) -> Result<(i32, Info), i32> {
    let mut info = Info::default();
    let highest = msgctl(0, command, std::ptr::from_mut(&mut info).cast())?;
    Ok((highest, info))
}

/// `msgctl ID COMMAND [ARGUMENTS | fault]`
pub fn control(args: &mut Args) -> Reply {
    let (id, command) = (args.int(), args.int());
    if args.take("fault") {
        return msgctl(id, command, BAD.cast()).map(|value| format!("value={value}"));
    }
    let mut ds = empty();
    match command {
        libc::IPC_STAT => {
            msgctl(id, command, &mut ds)?;
            Ok(describe(&ds))
        }
        libc::IPC_SET => {
            (ds.msg_perm.uid, ds.msg_perm.gid) = (args.int() as u32, args.int() as u32);
            ds.msg_perm.mode = args.int() as _;
            ds.msg_qbytes = args.number() as _;
            msgctl(id, command, &mut ds).map(|value| format!("value={value}"))
        }
        libc::IPC_INFO | libc::MSG_INFO => {
            let (_, found) = info(command)?;
            Ok(format!(
                "pool={} map={} max={} mnb={} mni={} ssz={} tql={} seg={}",
                found.msgpool,
                found.msgmap,
                found.msgmax,
                found.msgmnb,
                found.msgmni,
                found.msgssz,
                found.msgtql,
                found.msgseg
            ))
        }
        _ => msgctl(id, command, &mut ds).map(|value| format!("value={value}")),
    }
}

/// `msgscan COMMAND`: what MSG_STAT or MSG_STAT_ANY say of every index.
pub fn scan(args: &mut Args) -> Reply {
    let command = args.int();
    let (highest, _) = info(libc::MSG_INFO)?;
    let mut lines = Vec::new();
    for index in 0..=highest {
        let mut ds = empty();
        match msgctl(index, command, &mut ds) {
            Ok(id) => lines.push(format!("id=!{id} {}", describe(&ds))),
            Err(libc::EINVAL) => {} // a hole
            Err(errno) => lines.push(format!("err={errno}")),
        }
    }
    Ok(lines.join(" ; "))
}
