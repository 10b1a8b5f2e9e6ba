//! Mappings of a pool in this process, as its kernel lists them. Programs move mappings (`mremap`).

use core::ops::{ControlFlow, Range};

use crate::sys::{self, Owned};

/// A part of a pool that is mapped, beside the mapping of all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// The addresses.
    pub range: Range<usize>,
    /// The offset in the pool at which it begins.
    pub offset: u64,
}

/// A line of /proc/self/maps, as far as it is read: numbers, and which one comes next.
#[derive(Default)]
struct Line {
    numbers: [u64; 6],
    next: usize,
}

/// Places of a line's numbers: `from-to access offset major:minor inode`. The letters of the access count as
/// a number.
const FROM: usize = 0;
const TO: usize = 1;
const OFFSET: usize = 3;
const DEVICE: usize = 4;
const INODE: usize = 5;

impl Line {
    fn add(&mut self, byte: u8) {
        let Some(number) = self.numbers.get_mut(self.next) else { return };
        let base = if self.next == INODE { 10 } else { 16 };
        match (byte as char).to_digit(base) {
            Some(digit) => *number = number.wrapping_mul(base.into()).wrapping_add(digit.into()),
            // Minor numbers have 20 bits.
            None if byte == b':' => *number <<= 32,
            None if byte == b' ' || byte == b'-' && self.next == FROM => self.next += 1,
            None => (),
        }
    }

    fn file(&self) -> [u64; 2] {
        [self.numbers[DEVICE], self.numbers[INODE]]
    }

    fn range(&self) -> Range<usize> {
        self.numbers[FROM] as usize..self.numbers[TO] as usize
    }
}

/// Calls `each` with every line, in the order of addresses, until it breaks. `None`: they can't be read.
fn each_line(each: &mut dyn FnMut(&Line) -> ControlFlow<()>) -> Option<()> {
    let file = Owned::new(sys::open(c"/proc/self/maps", libc::O_RDONLY, 0).ok()?);
    let (mut buffer, mut line) = ([0; 1024], Line::default());
    loop {
        let len = sys::read(file.fd(), &mut buffer).ok()?;
        if len == 0 {
            return Some(());
        }
        for byte in buffer.iter().take(len) {
            if *byte != b'\n' {
                line.add(*byte);
            } else if each(&core::mem::take(&mut line)).is_break() {
                return Some(());
            }
        }
    }
}

/// Calls `each` with the addresses of every mapping of this process, in their order, until it breaks. `None`:
/// the kernel does not tell them (proc_pid_maps(5)).
pub fn each_mapping(each: &mut dyn FnMut(Range<usize>) -> ControlFlow<()>) -> Option<()> {
    each_line(&mut |line| each(line.range()))
}

/// Calls `each` with every mapping of the file that is mapped at `whole` from `begins` on, that one left out,
/// in the order of addresses. `None`: that can't be told.
pub(crate) fn each(whole: &Range<usize>, begins: u64, each: &mut dyn FnMut(Mapped)) -> Option<()> {
    let mut ours = None;
    each_line(&mut |line| {
        if line.range().contains(&whole.start) {
            ours = Some(line.file());
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    })?;
    let ours = ours?;
    each_line(&mut |line| {
        let range = line.range();
        if line.file() == ours && (range.start < whole.start || range.start >= whole.end) {
            let offset = line.numbers[OFFSET].wrapping_sub(begins);
            each(Mapped { range, offset });
        }
        ControlFlow::Continue(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        let mut line = Line::default();
        for byte in b"7f51e83d8000-7f51e83d9000 rw-s 0ffff000 00:1a 12345    /dev/shm/vshmem.0/a 7" {
            line.add(*byte);
        }
        assert_eq!(line.range(), 0x7f51_e83d_8000..0x7f51_e83d_9000);
        assert_eq!((line.file(), line.numbers[OFFSET]), ([0x1a, 12345], 0xffff000));
    }

    #[test]
    fn own_mappings_are_found() {
        let page = sys::page_size() as usize;
        let file = Owned::new(sys::memory_file(c"maps-test").unwrap());
        sys::truncate(file.fd(), 4 * page as u64).unwrap();
        // SAFETY: new mappings at addresses of the kernel's choice.
        let map = |len, offset| unsafe {
            sys::map(0, len, libc::PROT_READ, libc::MAP_SHARED, file.fd(), offset).unwrap() as usize
        };
        let whole = map(4 * page, 0);
        let part = map(page, 2 * page as u64);
        let mut found = std::vec![];
        each(&(whole..whole + 4 * page), page as u64, &mut |mapped| found.push(mapped)).unwrap();
        assert_eq!(found, [Mapped { range: part..part + page, offset: page as u64 }]);
    }
}
