//! Which segments this process has attached, and where.
//!
//! A hash table by address, changed under the gate only. It lies in private memory, so a child inherits a copy, as it
//! inherits the mappings. It grows by moving to a larger mapping.

use crate::gate::Inside;
use crate::raw;
use core::ops::Range;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use vshmem_ipc::Errno;

/// One attachment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// Where it begins.
    pub addr: usize,
    /// Its length in bytes, whole pages.
    pub len: usize,
    /// The segment.
    pub id: i32,
    /// The pool, as an index into the open pools.
    pub pool: u8,
    /// Later attachments have higher numbers. One that covers part of an earlier one (SHM_REMAP) owns that part.
    pub order: u32,
}

impl Attachment {
    /// The addresses.
    pub fn range(&self) -> Range<usize> {
        self.addr..self.addr + self.len
    }
}

/// A place in the table. `addr`: 0 is free, 1 was freed, anything else is taken.
struct Cell {
    addr: AtomicUsize,
    len: AtomicUsize,
    what: AtomicU64,
    order: AtomicU32,
}

const FREE: usize = 0;
const FREED: usize = 1;

impl Cell {
    fn read(&self) -> Option<Attachment> {
        let (addr, what) = (self.addr.load(Relaxed), self.what.load(Relaxed));
        (addr > FREED).then(|| Attachment {
            addr,
            len: self.len.load(Relaxed),
            id: what as u32 as i32,
            pool: (what >> 32) as u8,
            order: self.order.load(Relaxed),
        })
    }

    fn write(&self, a: &Attachment) {
        self.len.store(a.len, Relaxed);
        self.what
            .store(u64::from(a.id as u32) | u64::from(a.pool) << 32, Relaxed);
        self.order.store(a.order, Relaxed);
        self.addr
            .store(a.addr, core::sync::atomic::Ordering::Release);
    }
}

/// The mapping that the table is in, and how full it is.
pub struct Table {
    cells: AtomicPtr<Cell>,
    capacity: AtomicUsize,
    /// Cells that are not free, freed ones included.
    used: AtomicUsize,
    live: AtomicUsize,
    next_order: AtomicU32,
}

/// This process's attachments.
pub static TABLE: Table = Table::new();

const FIRST_CAPACITY: usize = 128;

impl Table {
    const fn new() -> Table {
        Table {
            cells: AtomicPtr::new(core::ptr::null_mut()),
            capacity: AtomicUsize::new(0),
            used: AtomicUsize::new(0),
            live: AtomicUsize::new(0),
            next_order: AtomicU32::new(0),
        }
    }

    fn cells(&self) -> &[Cell] {
        let (cells, capacity) = (self.cells.load(Relaxed), self.capacity.load(Relaxed));
        if cells.is_null() {
            return &[];
        }
        // SAFETY: `grow` stored a mapping of that many cells, and unmaps it only under the gate, which callers hold.
        unsafe { core::slice::from_raw_parts(cells, capacity) }
    }

    /// Makes sure that the next [`Table::insert`] finds room.
    pub fn reserve(&self, gate: &Inside) -> Result<(), Errno> {
        let capacity = self.capacity.load(Relaxed);
        if (self.used.load(Relaxed) + 1) * 2 <= capacity {
            return Ok(());
        }
        self.grow(
            gate,
            (self.live.load(Relaxed) * 4)
                .next_power_of_two()
                .max(FIRST_CAPACITY),
        )
    }

    fn grow(&self, gate: &Inside, capacity: usize) -> Result<(), Errno> {
        let fresh = raw::map_private(capacity * size_of::<Cell>()).cast::<Cell>();
        if fresh.is_null() {
            return Err(Errno(libc::ENOMEM));
        }
        let old = self.cells();
        self.cells.store(fresh, Relaxed);
        self.capacity.store(capacity, Relaxed);
        self.used.store(0, Relaxed);
        self.live.store(0, Relaxed);
        old.iter()
            .filter_map(Cell::read)
            .for_each(|a| self.place(&a));
        let _ = gate;
        if !old.is_empty() {
            // SAFETY: the old mapping is of that size, and nobody reads it: we are inside the gate.
            unsafe { raw::unmap(old.as_ptr().cast_mut().cast(), size_of_val(old)) };
        }
        Ok(())
    }

    /// Adds an attachment as the newest. [`Table::reserve`] was called before, under the same gate.
    pub fn insert(&self, _gate: &Inside, attachment: Attachment) {
        let order = self.next_order.fetch_add(1, Relaxed);
        self.place(&Attachment {
            order,
            ..attachment
        });
    }

    fn place(&self, attachment: &Attachment) {
        let cells = self.cells();
        for i in probe(attachment.addr, cells.len()) {
            let was = cells[i].addr.load(Relaxed);
            if was <= FREED {
                self.used.fetch_add(usize::from(was == FREE), Relaxed);
                self.live.fetch_add(1, Relaxed);
                cells[i].write(attachment);
                return;
            }
        }
    }

    fn position(&self, addr: usize) -> Option<usize> {
        let cells = self.cells();
        let mut newest: Option<(u32, usize)> = None;
        for i in probe(addr, cells.len()) {
            match cells[i].addr.load(Relaxed) {
                FREE => break,
                a if a == addr => newest = newest.max(Some((cells[i].order.load(Relaxed), i))),
                _ => {}
            }
        }
        newest.map(|(_, i)| i)
    }

    /// Takes the newest attachment that begins at `addr` out of the table.
    pub fn take(&self, _gate: &Inside, addr: usize) -> Option<Attachment> {
        let cell = &self.cells()[self.position(addr)?];
        self.clear(cell)
    }

    fn clear(&self, cell: &Cell) -> Option<Attachment> {
        let attachment = cell.read();
        cell.addr.store(FREED, Relaxed);
        self.live.fetch_sub(1, Relaxed);
        attachment
    }

    /// Takes one attachment out that lies within `range` whole and is older than `order`.
    pub fn take_covered(
        &self,
        _gate: &Inside,
        range: &Range<usize>,
        order: u32,
    ) -> Option<Attachment> {
        let covered = |a: &Attachment| {
            a.order < order && a.addr >= range.start && a.addr + a.len <= range.end
        };
        let cell = self
            .cells()
            .iter()
            .find(|c| c.read().is_some_and(|a| covered(&a)))?;
        self.clear(cell)
    }

    /// The order that the next attachment gets.
    pub fn next_order(&self, _gate: &Inside) -> u32 {
        self.next_order.load(Relaxed)
    }

    /// Calls `each` with the parts of `whole` that no newer attachment covers.
    pub fn uncovered(
        &self,
        _gate: &Inside,
        whole: &Attachment,
        each: &mut dyn FnMut(Range<usize>),
    ) {
        let (mut at, end) = (whole.addr, whole.addr + whole.len);
        while at < end {
            let newer = || {
                self.cells()
                    .iter()
                    .filter_map(Cell::read)
                    .filter(|a| a.order > whole.order)
            };
            if let Some(a) = newer().find(|a| a.range().contains(&at)) {
                at = a.range().end;
                continue;
            }
            let stop = newer()
                .map(|a| a.addr)
                .filter(|s| *s > at)
                .min()
                .unwrap_or(end)
                .min(end);
            each(at..stop);
            at = stop;
        }
    }

    /// Calls `each` with every attachment.
    pub fn each(&self, _gate: &Inside, each: &mut dyn FnMut(Attachment)) {
        self.cells().iter().filter_map(Cell::read).for_each(each);
    }

    /// How many attachments there are.
    pub fn count(&self) -> usize {
        self.live.load(Relaxed)
    }
}

/// The cells to look at for an address, in order; the capacity is a power of two.
fn probe(addr: usize, capacity: usize) -> impl Iterator<Item = usize> {
    let start = (addr >> 12).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
    (0..capacity).map(move |i| start.wrapping_add(i) & (capacity - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(addr: usize, len: usize, id: i32) -> Attachment {
        Attachment {
            addr,
            len,
            id,
            pool: 3,
            order: 0,
        }
    }

    fn add(table: &Table, gate: &Inside, a: Attachment) {
        table.reserve(gate).unwrap();
        table.insert(gate, a);
    }

    #[test]
    fn grows_and_forgets() {
        let (table, gate) = (Table::new(), crate::gate::enter().unwrap());
        assert_eq!(table.take(&gate, 0x5000), None);
        for i in 1..5000 {
            add(&table, &gate, at(i << 12, 4096, i as i32));
        }
        assert_eq!(table.count(), 4999);
        for i in 1..5000 {
            assert_eq!(
                table.take(&gate, i << 12).map(|a| (a.id, a.pool, a.len)),
                Some((i as i32, 3, 4096))
            );
            assert_eq!(table.take(&gate, i << 12), None);
        }
        for i in 1..100_000 {
            add(&table, &gate, at(i << 12, 4096, 1));
            assert!(table.take(&gate, i << 12).is_some());
        }
        assert!(
            table.capacity.load(Relaxed) <= 16384,
            "freed cells are used again"
        );
    }

    #[test]
    fn a_newer_attachment_owns_what_it_covers() {
        let (table, gate) = (Table::new(), crate::gate::enter().unwrap());
        add(&table, &gate, at(0x1000, 0x9000, 1));
        add(&table, &gate, at(0x3000, 0x1000, 2));
        add(&table, &gate, at(0x5000, 0x2000, 3));
        let old = Attachment {
            order: 0,
            ..at(0x1000, 0x9000, 1)
        };
        let mut parts = vec![];
        table.uncovered(&gate, &old, &mut |r| parts.push(r));
        assert_eq!(parts, [0x1000..0x3000, 0x4000..0x5000, 0x7000..0xa000]);
        let order = table.next_order(&gate);
        assert_eq!(
            table
                .take_covered(&gate, &(0x2000..0x5000), order)
                .map(|a| a.id),
            Some(2)
        );
        assert_eq!(table.take_covered(&gate, &(0x2000..0x5000), order), None);
        add(&table, &gate, at(0x1000, 0x1000, 4));
        assert_eq!(
            table.take(&gate, 0x1000).map(|a| a.id),
            Some(4),
            "the newest at an address comes first"
        );
        assert_eq!(table.take(&gate, 0x1000).map(|a| a.id), Some(1));
    }
}
