//! Texts and messages that others write: files, answers, what is said on sockets and on virtio ports. The first byte chooses who reads the
//! rest, from a list that only grows at its end, so that inputs keep their meaning.

/// A reader of one kind of text.
type Reader = fn(&[u8]);

/// Readers of one room, each by its name.
type Room = &'static [(&'static str, Reader)];

/// The rooms; each has 32 numbers of its own.
const ROOMS: [Room; 3] = [
    vshmem_port::fuzz::READERS,
    vshmem_agent::fuzz::READERS,
    vshmem_cluster::fuzz::READERS,
];

/// Has the rest of the bytes read.
pub fn run(bytes: &[u8]) {
    let Some((which, rest)) = bytes.split_first() else {
        return;
    };
    let room = ROOMS.get(usize::from(which >> 5));
    if let Some((_, read)) = room.and_then(|room| room.get(usize::from(which & 31))) {
        read(rest);
    }
}
