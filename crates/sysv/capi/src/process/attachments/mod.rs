//! The attachments of this process, and where they are.
//!
//! A hash table by address, changed under the gate only. It lies in private memory, so a child inherits a
//! copy, as it inherits the mappings. It grows by moving to a larger mapping.

mod piece;

pub use piece::Piece;

use crate::process::gate::Inside;
use crate::process::raw;
use core::ops::Range;
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering::*};
use vshmem_ipc::Errno;
use vshmem_pool::layout::PAGE;

/// A place in the table. `state`: 0 is free, 1 was freed, anything else is taken and is 2 more than the base,
/// which is a whole number of pages and may be zero.
struct Cell {
    state: AtomicUsize,
    addr: AtomicUsize,
    len: AtomicUsize,
    what: AtomicU64,
    source: AtomicU64,
    begins: AtomicU64,
    order: AtomicU64,
}

const FREE: usize = 0;
const FREED: usize = 1;
const TAKEN: usize = 2;

/// The bit of a cell's word, beside id and pool, that the piece is kept from children.
const KEPT: u64 = 1 << 40;

impl Cell {
    fn read(&self) -> Option<Piece> {
        let (state, what) = (self.state.load(Relaxed), self.what.load(Relaxed));
        (state >= TAKEN).then(|| Piece {
            base: state - TAKEN,
            addr: self.addr.load(Relaxed),
            len: self.len.load(Relaxed),
            id: what as u32 as i32,
            pool: (what >> 32) as u8,
            is_kept: what & KEPT != 0,
            source: self.source.load(Relaxed),
            begins: self.begins.load(Relaxed),
            order: self.order.load(Relaxed),
        })
    }

    fn write(&self, p: &Piece) {
        self.addr.store(p.addr, Relaxed);
        self.len.store(p.len, Relaxed);
        let kept = if p.is_kept { KEPT } else { 0 };
        let what = u64::from(p.id as u32) | u64::from(p.pool) << 32 | kept;
        self.what.store(what, Relaxed);
        self.source.store(p.source, Relaxed);
        self.begins.store(p.begins, Relaxed);
        self.order.store(p.order, Relaxed);
        self.state.store(p.base + TAKEN, Release);
    }
}

/// The mapping that the table is in, and how full it is.
pub struct Table {
    cells: AtomicPtr<Cell>,
    capacity: AtomicUsize,
    /// Cells that are not free, freed ones included.
    used: AtomicUsize,
    live: AtomicUsize,
    next_order: AtomicU64,
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
            next_order: AtomicU64::new(0),
        }
    }

    fn cells(&self) -> &[Cell] {
        let (cells, capacity) = (self.cells.load(Relaxed), self.capacity.load(Relaxed));
        if cells.is_null() {
            return &[];
        }
        // SAFETY: `grow` stored a mapping of that many cells, and unmaps it only under the gate, which
        // callers hold.
        unsafe { core::slice::from_raw_parts(cells, capacity) }
    }

    /// Makes sure that the next [`Table::cut`] and [`Table::insert`] find room. Pieces don't overlap, so a
    /// cut splits one of them at the most.
    pub fn reserve(&self, gate: &Inside) -> Result<(), Errno> {
        let capacity = self.capacity.load(Relaxed);
        if (self.used.load(Relaxed) + 2) * 2 <= capacity {
            return Ok(());
        }
        let wanted = (self.live.load(Relaxed) * 4).next_power_of_two();
        self.grow(gate, wanted.max(FIRST_CAPACITY))
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
        old.iter().filter_map(Cell::read).for_each(|a| self.place(&a));
        let _ = gate;
        if !old.is_empty() {
            // SAFETY: the old mapping is of that size, and nobody reads it: we are inside the gate.
            unsafe { raw::unmap(old.as_ptr().cast_mut().cast(), size_of_val(old)) };
        }
        Ok(())
    }

    /// Adds an attachment as the newest. [`Table::reserve`] was called before, under the same gate.
    pub fn insert(&self, _gate: &Inside, whole: Piece) {
        let order = self.next_order.fetch_add(1, Relaxed);
        self.place(&Piece { order, ..whole });
    }

    /// Adds a piece of an attachment that was taken out, as it was or somewhere else.
    pub fn put_back(&self, _gate: &Inside, piece: &Piece) {
        self.place(piece);
    }

    fn place(&self, piece: &Piece) {
        let cells = self.cells();
        for i in probe(piece.base, cells.len()) {
            let was = cells[i].state.load(Relaxed);
            if was <= FREED {
                self.used.fetch_add(usize::from(was == FREE), Relaxed);
                self.live.fetch_add(1, Relaxed);
                cells[i].write(piece);
                return;
            }
        }
    }

    /// The cells of all pieces of attachments at `base`.
    fn at(&self, base: usize) -> impl Iterator<Item = &Cell> {
        let cells = self.cells();
        probe(base, cells.len())
            .map(move |i| &cells[i])
            .take_while(|cell| cell.state.load(Relaxed) != FREE)
            .filter(move |cell| cell.state.load(Relaxed) == base + TAKEN)
    }

    /// The first piece of the newest attachment at `base`.
    pub fn newest_at(&self, _gate: &Inside, base: usize) -> Option<Piece> {
        let key = |p: &Piece| (p.order, core::cmp::Reverse(p.addr));
        self.at(base).filter_map(Cell::read).max_by_key(key)
    }

    /// Takes one piece out of the table.
    pub fn take_piece(&self, _gate: &Inside, piece: &Piece) {
        let cell = self.at(piece.base).find(|cell| cell.read().as_ref() == Some(piece));
        cell.and_then(|cell| self.clear(cell));
    }

    /// Takes the newest attachment at `base` out of the table, piece by piece. False: there is none.
    pub fn take(&self, _gate: &Inside, base: usize, each: &mut dyn FnMut(Piece)) -> bool {
        if base as u64 % PAGE != 0 {
            return false;
        }
        let Some(newest) = self.at(base).map(|cell| cell.order.load(Relaxed)).max() else {
            return false;
        };
        self.at(base)
            .filter(|cell| cell.order.load(Relaxed) == newest)
            .filter_map(|cell| self.clear(cell))
            .for_each(each);
        true
    }

    fn clear(&self, cell: &Cell) -> Option<Piece> {
        let piece = cell.read();
        cell.state.store(FREED, Relaxed);
        self.live.fetch_sub(1, Relaxed);
        piece
    }

    /// Something else is mapped at `range` now: cuts it out of all pieces. Calls `each` with a piece as it
    /// was, and how many are left of it.
    pub fn cut(&self, _gate: &Inside, range: &Range<usize>, each: &mut dyn FnMut(Piece, usize)) {
        let find = |cell: &&Cell| cell.read().is_some_and(|p| p.meets(range));
        while let Some(piece) = self.cells().iter().find(find).and_then(|c| self.clear(c)) {
            let rests = piece.without(range);
            rests.iter().flatten().for_each(|rest| self.place(rest));
            each(piece, rests.iter().flatten().count());
        }
    }

    /// Notes that the program keeps attachments in a range from children, or does so no more.
    pub fn keep_from_children(&self, _gate: &Inside, range: &Range<usize>, is_kept: bool) {
        for cell in self.cells() {
            if let Some(piece) = cell.read().filter(|p| p.lies_in(range)) {
                cell.write(&Piece { is_kept, ..piece });
            }
        }
    }

    /// Forgets the attachments in a pool that the process has not inherited.
    pub fn forget_kept(&self, _gate: &Inside, pool: usize) {
        for cell in self.cells() {
            if cell.read().is_some_and(|p| p.is_kept && usize::from(p.pool) == pool) {
                self.clear(cell);
            }
        }
    }

    /// Calls `each` with every piece.
    pub fn each(&self, _gate: &Inside, each: &mut dyn FnMut(Piece)) {
        self.cells().iter().filter_map(Cell::read).for_each(each);
    }

    /// Calls `each` with every segment of a pool and every source by which it is mapped, and how many pieces
    /// there are of that, until INSIDE.
    pub fn each_segment(
        &self,
        _gate: &Inside,
        pool: usize,
        each: &mut dyn FnMut(i32, u64, u64) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let pieces = || self.cells().iter().filter_map(Cell::read).filter(|p| p.pool as usize == pool);
        for (i, piece) in pieces().enumerate() {
            let is_it = |other: &Piece| (other.id, other.source) == (piece.id, piece.source);
            if !pieces().take(i).any(|p| is_it(&p)) {
                match each(piece.id, piece.source, pieces().filter(is_it).count() as u64) {
                    Err(Errno::INSIDE) => return Err(Errno::INSIDE),
                    // What can't be counted counts less.
                    _ => continue,
                }
            }
        }
        Ok(())
    }

    /// Calls `each` with every piece that [`Table::cut`] would cut, and how many would be left of it.
    pub fn each_cut(&self, _gate: &Inside, range: &Range<usize>, each: &mut dyn FnMut(Piece, usize)) {
        let find = |cell: &&Cell| cell.read().is_some_and(|p| p.meets(range));
        for piece in self.cells().iter().filter(find).filter_map(Cell::read) {
            each(piece, piece.without(range).iter().flatten().count());
        }
    }

    /// The number that the next attachment gets.
    pub fn next_order(&self, _gate: &Inside) -> u64 {
        self.next_order.load(Relaxed)
    }

    /// The number of pieces.
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

    fn add(table: &Table, gate: &Inside, addr: usize, len: usize, id: i32) {
        table.reserve(gate).unwrap();
        table.insert(gate, Piece::whole(addr..addr + len, 0, id, 3, 0));
    }

    fn take(table: &Table, gate: &Inside, base: usize) -> Vec<(i32, u8, Range<usize>)> {
        let mut taken = vec![];
        let any = table.take(gate, base, &mut |p| taken.push((p.id, p.pool, p.range())));
        assert_eq!(any, !taken.is_empty());
        taken.sort_by_key(|(_, _, range)| range.start);
        taken
    }

    #[test]
    fn grows_and_forgets() {
        let (table, gate) = (Table::new(), crate::process::gate::enter().unwrap());
        assert_eq!(take(&table, &gate, 0x5000), []);
        assert_eq!(take(&table, &gate, 0), []);
        // Who may map something at zero may attach there.
        for i in 0..5000 {
            add(&table, &gate, i << 12, 4096, i as i32);
        }
        assert_eq!(table.count(), 5000);
        assert_eq!(take(&table, &gate, 2), []);
        assert_eq!(take(&table, &gate, usize::MAX), []);
        for i in 0..5000 {
            let at = i << 12;
            assert_eq!(take(&table, &gate, at), [(i as i32, 3, at..at + 4096)]);
            assert_eq!(take(&table, &gate, at), []);
        }
        for i in 1..100_000 {
            add(&table, &gate, i << 12, 4096, 1);
            assert_eq!(take(&table, &gate, i << 12).len(), 1);
        }
        let capacity = table.capacity.load(Relaxed);
        assert!(capacity <= 32768, "freed cells are used again: {capacity}");
    }

    #[test]
    fn what_is_cut_out_is_gone_for_good() {
        let (table, gate) = (Table::new(), crate::process::gate::enter().unwrap());
        let cut = |range: Range<usize>| {
            let mut seen = vec![];
            table.cut(&gate, &range, &mut |p, rests| seen.push((p.id, rests)));
            seen.sort();
            seen
        };
        add(&table, &gate, 0x1000, 0x9000, 1);
        assert_eq!(cut(0x3000..0x4000), [(1, 2)]);
        add(&table, &gate, 0x3000, 0x1000, 2);
        assert_eq!(cut(0x3000..0x4000), [(2, 0)]);
        assert_eq!(cut(0x3000..0x5000), [(1, 1)]);
        assert_eq!(cut(0x3000..0x5000), []);
        // The start is covered: the newer attachment at the same address comes first.
        assert_eq!(cut(0x1000..0x2000), [(1, 1)]);
        add(&table, &gate, 0x1000, 0x1000, 4);
        assert_eq!(take(&table, &gate, 0x1000), [(4, 3, 0x1000..0x2000)]);
        let rests = [(1, 3, 0x2000..0x3000), (1, 3, 0x5000..0xa000)];
        assert_eq!(take(&table, &gate, 0x1000), rests);
        assert_eq!(table.count(), 0);
    }
}
