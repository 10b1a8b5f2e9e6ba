//! Texts and messages that others write: files, answers, what is said on sockets and on virtio ports. The
//! first byte chooses who reads the rest, from a list that only grows at its end, so that inputs keep their
//! meaning.

/// A reader of one kind of text.
type Reader = fn(&[u8]);

/// Readers of one subject, each by its name.
type Readers = &'static [(&'static str, Reader)];

/// The readers of one room, and by which numbers they are called.
struct Room {
    readers: &'static [Readers],
    numbers: &'static [&'static str],
}

/// The rooms; each has 32 numbers of its own.
const ROOMS: [Room; 3] = [
    Room {
        readers: &[vshmem_transport::fuzz::READERS],
        numbers: &["ids", "grant", "command line", "stat", "pool"],
    },
    Room {
        readers: &[
            vshmem_agent::fuzz::READERS,
            vshmem_agent::ivshmem::fuzz::READERS,
            vshmem_agent::xen::fuzz::READERS,
        ],
        numbers: &["front end", "control", "http", "address", "ivshmem", "fd store", "announcement"],
    },
    Room {
        readers: &[vshmem_cluster::fuzz::READERS, vshmem_cluster::fuzz::LAUNCHER_READERS],
        numbers: &[
            "record",
            "monitor",
            "front end",
            "frames",
            "start",
            "elf",
            "image",
            "settings",
            "lists",
            "name",
            "guest session",
            "host session",
            "attached",
            "relay",
            "remote command",
            "description",
        ],
    },
];

/// The input by which the reader of this name, if there is one, reads a text.
pub fn addressed(name: &str, text: &[u8]) -> Option<Vec<u8>> {
    let find =
        |(room, its): (usize, &Room)| Some((room, its.numbers.iter().position(|other| *other == name)?));
    let (room, number) = ROOMS.iter().enumerate().find_map(find)?;
    Some([&[(room << 5 | number) as u8], text].concat())
}

/// Has the rest of the bytes read.
pub fn run(bytes: &[u8]) {
    let Some((which, rest)) = bytes.split_first() else {
        return;
    };
    let Some(room) = ROOMS.get(usize::from(which >> 5)) else {
        return;
    };
    let Some(name) = room.numbers.get(usize::from(which & 31)) else {
        return;
    };
    let mut all = room.readers.iter().copied().flatten();
    let (_, read) = all.find(|(its, _)| its == name).expect("its reader");
    read(rest);
}
