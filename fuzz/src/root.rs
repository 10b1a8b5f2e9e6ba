//! What a machine says to the server of its root, and what a file may have in the place of a kept tree.

use crate::input::Input;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::FromRawFd;
use std::os::unix::fs::FileExt;
use vshmem_root::serve::{serve, Export, MAX_REQUEST};
use vshmem_root::tree::sealed;
use vshmem_root::{Image, Tree};

/// The most bytes that a session writes before its end is near: an answer for each byte that a client has
/// said.
const MOST: usize = 64 << 20;
/// Chunks of sparse files of which an image is made; more of them take only time.
const FEW_CHUNKS: u64 = 1 << 16;

/// Runs what the first byte chooses.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    match input.byte() % 3 {
        0 => client(input.bytes(usize::MAX).to_vec()),
        1 => client(session(&mut input)),
        _ => kept(input.bytes(usize::MAX)),
    }
}

/// Some bytes, of which a part can't be read.
struct Bytes;

impl Export for Bytes {
    fn name(&self) -> &str {
        "0123"
    }

    fn length(&self) -> u64 {
        5 << 20
    }

    fn read(&self, into: &mut [u8], at: u64) -> io::Result<()> {
        let end = at.checked_add(into.len() as u64).expect("a range that was checked");
        assert!(end <= self.length() && !into.is_empty() && into.len() <= MAX_REQUEST as usize);
        into.fill(1);
        match at % 3 {
            0 => Err(io::ErrorKind::Other.into()),
            _ => Ok(()),
        }
    }
}

/// A connection whose client has said all, and reads as much as it is given.
struct Said {
    said: io::Cursor<Vec<u8>>,
    written: usize,
}

impl Read for Said {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.written < MOST {
            true => self.said.read(into),
            false => Ok(0),
        }
    }
}

impl Write for Said {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.written += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What a client says that knows the protocol, but for some of its numbers.
fn session(input: &mut Input) -> Vec<u8> {
    let mut said = 3u32.to_be_bytes().to_vec();
    while !input.is_empty() && input.byte() % 4 != 0 {
        let option = input.one_of(&[1u32, 2, 3, 5, 6, 7, 8, 10, u32::MAX]);
        let length = input.below(40);
        let data = input.bytes(length);
        said.extend(b"IHAVEOPT");
        said.extend(option.to_be_bytes());
        said.extend((data.len() as u32).to_be_bytes());
        said.extend(data);
    }
    said.extend(b"IHAVEOPT\0\0\0\x07\0\0\0\x06\0\0\0\0\0\0");
    while !input.is_empty() {
        said.extend(0x2560_9513u32.to_be_bytes());
        said.extend(input.u16().to_be_bytes());
        said.extend(input.one_of(&[0u16, 0, 0, 1, 2, 3, 4, 5, 6, 7, 99]).to_be_bytes());
        said.extend([7; 8]);
        let (at, length) = match input.byte() % 3 {
            0 => (input.u64(), input.u32()),
            1 => (input.u32().into(), u32::from(input.u16())),
            _ => (input.u16().into(), u32::from(input.u16())),
        };
        said.extend(at.to_be_bytes());
        said.extend(length.to_be_bytes());
    }
    said
}

fn client(said: Vec<u8>) {
    let mut stream = Said { said: io::Cursor::new(said), written: 0 };
    let _ = serve(&mut stream, &Bytes, &mut |_| Ok(()));
}

/// A file that is no tree gives an error; one that is gives the same tree again, and an image.
fn kept(body: &[u8]) {
    let Ok(tree) = Tree::parse(&sealed(body)) else { return };
    let mut again = Vec::new();
    tree.save(&mut again).expect("memory");
    assert!(Tree::parse(&again).expect("a tree that was just written") == tree);
    if tree.chunks() > FEW_CHUNKS {
        return;
    }
    // SAFETY: plain values; the descriptor is new, and nothing else has it.
    let file = unsafe { File::from_raw_fd(libc::memfd_create(c"image".as_ptr(), libc::MFD_CLOEXEC)) };
    let Ok(image) = Image::make(&tree, file) else { return };
    let mut metadata = vec![0; image.metadata_length() as usize];
    image.metadata().read_exact_at(&mut metadata, 0).expect("all of it was written");
    let blocks = image.length() / 4096;
    for block in [0, 1, image.metadata_length() / 4096, blocks.saturating_sub(1), blocks] {
        if let Some(extent) = image.extent_of(block.min(u32::MAX.into()) as u32) {
            let _ = tree.path_in_part(extent.node);
        }
    }
    for number in 0..tree.len() as u32 {
        let _ = tree.path(number);
        let _ = tree.attributes(tree.node(number)).count();
    }
}
