//! Calls as scenarios make them.

use vshmem_ipc::sem::{Sembuf, SEM_UNDO};
use vshmem_ipc::{msg, sem, shm, Ctx, Errno, IPC_CREAT};

/// The key that scenarios use.
pub const KEY: i32 = 4711;
/// Creates, for everybody.
pub const CREATE: i32 = IPC_CREAT | 0o666;

/// A context whose pool and kernel stay.
pub type C = Ctx<'static>;

/// A private set with these values.
pub fn set_of(c: &C, values: &[u16]) -> i32 {
    let id = sem::get(c, 0, values.len() as i32, CREATE).expect("a set");
    sem::setall(c, id, &mut |i| values.get(i).copied()).expect("values");
    id
}

/// The values of a set.
pub fn values(c: &C, id: i32) -> Vec<u16> {
    let mut all = Vec::new();
    let read = sem::getall(c, id, &mut |_, v| {
        all.push(v);
        true
    });
    read.expect("values");
    all
}

/// An operation.
pub fn op(num: u16, op: i16) -> Sembuf {
    Sembuf { num, op, flg: 0 }
}

/// One that is undone.
pub fn undone(num: u16, op: i16) -> Sembuf {
    let flg = SEM_UNDO;
    Sembuf { num, op, flg }
}

/// A private queue.
pub fn queue(c: &C) -> i32 {
    msg::get(c, 0, CREATE).expect("a queue")
}

/// `msgsnd`.
pub fn send(c: &C, id: i32, kind: i64, text: &[u8], flg: i32) -> Result<(), Errno> {
    // SAFETY: the text has so many bytes.
    unsafe { msg::send(c, id, kind, text.as_ptr(), text.len(), flg) }
}

/// `msgrcv`, of up to `cap` bytes.
pub fn receive(c: &C, id: i32, cap: usize, kind: i64, flg: i32) -> Result<(i64, Vec<u8>), Errno> {
    let mut text = vec![0; cap];
    // SAFETY: the buffer has so many bytes.
    let (n, kind) = unsafe { msg::receive(c, id, text.as_mut_ptr(), cap, kind, flg)? };
    text.truncate(n);
    Ok((kind, text))
}

/// A text that tells which message it is.
pub fn text(n: u32, len: usize) -> Vec<u8> {
    let byte = |i: usize| (n as usize * 31 + i) as u8 | 1;
    (0..len).map(byte).collect()
}

/// All messages of a queue, in order, which is empty then.
pub fn drain(c: &C, id: i32) -> Vec<(i64, Vec<u8>)> {
    let next = || receive(c, id, 8192, 0, vshmem_ipc::IPC_NOWAIT).ok();
    std::iter::from_fn(next).collect()
}

/// Messages and bytes in a queue.
pub fn counts(c: &C, id: i32) -> (u64, u64) {
    let ds = msg::stat(c, id).expect("a queue");
    (ds.qnum, ds.cbytes)
}

/// Attachments of a segment.
pub fn attached(c: &C, id: i32) -> u64 {
    shm::stat(c, id).expect("a segment").nattch
}
