//! Attachments that are not where they were made: programs move them (`mremap`), also by system calls of
//! their own. They are looked for when `shmdt` is given an address where nothing was attached or nothing is
//! any more, and when something else was mapped where one should be.

use super::remains::{Owners, Remains};
use crate::pools::heirs;
use crate::pools::table::POOLS;
use crate::process::attachments::{Piece, TABLE};
use crate::process::gate::Inside;
use crate::process::page::MAX_POOLS;
use crate::process::raw::syscall;
use core::ops::Range;
use vshmem_pool::layout::PAGE;
use vshmem_transport::Mapped;

/// The error where the kernel does not tell what is mapped.
struct Unknown;

/// Brings the table up to date about an address.
pub fn follow(gate: &Inside, addr: usize, owners: &mut Owners) {
    match TABLE.newest_at(gate, addr) {
        Some(_) => {
            while let Some(piece) = TABLE.newest_at(gate, addr).filter(|piece| !is_mapped(piece.addr)) {
                let found = find(gate, &piece, None);
                TABLE.take_piece(gate, &piece);
                put(gate, piece, found, owners);
            }
        }
        None if is_mapped(addr) => (0..MAX_POOLS).for_each(|pool| claim(gate, pool, addr)),
        None => {}
    }
}

/// An attachment, of which this piece was taken out of the table, has given way to one that the kernel has
/// placed at `by`.
pub fn displaced(gate: &Inside, piece: Piece, n: usize, by: usize, remains: &Remains, owners: &mut Owners) {
    if n > 0 {
        // A part of it was unmapped, or all of it moved.
        heirs::suspect(gate);
        return remains.note(&piece, n, owners);
    }
    let found = find(gate, &piece, Some(by));
    put(gate, piece, found, owners);
}

/// Enters an attachment where it was found, or gives it up.
fn put(gate: &Inside, piece: Piece, found: Result<Option<Range<usize>>, Unknown>, owners: &mut Owners) {
    match found {
        Ok(Some(range)) => return TABLE.put_back(gate, &piece.moved(range)),
        Ok(None) => {}
        Err(Unknown) => heirs::suspect(gate),
    }
    owners.note(&piece);
}

/// Asks the kernel whether the page at an address is mapped.
fn is_mapped(addr: usize) -> bool {
    let mut is_present = 0u8;
    // Unlike `msync`, of which valgrind thinks that it touches what is there.
    // SAFETY: the kernel writes a byte for the page.
    unsafe { syscall!(libc::SYS_mincore, addr, 1usize, &raw mut is_present) == 0 }
}

/// The first wanted mapping of a pool's file. It is joined with those that go on without a gap, in addresses
/// and in the file, up to `len` bytes.
fn first(pool: usize, len: usize, wanted: impl Fn(&Mapped) -> bool) -> Result<Option<Mapped>, Unknown> {
    let place = POOLS.get(pool).filter(|place| place.is_open()).ok_or(Unknown)?;
    let mut found = None::<Mapped>;
    // SAFETY: it is open, and we are inside the gate.
    let handle = unsafe { &place.opened().handle };
    let all = handle.each_mapped(&mut |next| match &mut found {
        None if wanted(&next) => found = Some(next),
        None => {}
        Some(found) => {
            let has = found.range.len();
            let goes_on = next.range.start == found.range.end && next.offset == found.offset + has as u64;
            if goes_on && has < len {
                found.range.end = next.range.end.min(found.range.start + len);
            }
        }
    });
    all.ok_or(Unknown)?;
    Ok(found)
}

/// The addresses of an attachment that is not where the table has it. They don't begin at `except`.
fn find(gate: &Inside, piece: &Piece, except: Option<usize>) -> Result<Option<Range<usize>>, Unknown> {
    let is_another = |mapped: &Mapped| {
        let mut any = except == Some(mapped.range.start);
        TABLE.each(gate, &mut |p| any |= p.addr == mapped.range.start && p.offset() == mapped.offset);
        any
    };
    let wanted = |mapped: &Mapped| mapped.offset == piece.offset() && !is_another(mapped);
    Ok(first(piece.pool.into(), piece.len, wanted)?.map(|mapped| mapped.range))
}

/// Enters an attachment of a pool at an address to which a program has moved it.
fn claim(gate: &Inside, pool: usize, addr: usize) {
    let Ok(Some(there)) = first(pool, PAGE as usize, |mapped| mapped.range.start == addr) else { return };
    let mut lost = None;
    TABLE.each(gate, &mut |p| {
        if lost.is_none() && usize::from(p.pool) == pool && p.offset() == there.offset && p.is_whole() {
            lost = Some(p);
        }
    });
    let is_in_place = |p: &Piece| {
        let at = |m: &Mapped| m.range.start == p.addr && m.offset == p.offset();
        !matches!(first(pool, PAGE as usize, at), Ok(None))
    };
    let Some(piece) = lost.filter(|p| !is_in_place(p)) else { return };
    if let Ok(Some(mapped)) = first(pool, piece.len, |mapped| mapped.range.start == addr) {
        TABLE.take_piece(gate, &piece);
        TABLE.put_back(gate, &piece.moved(mapped.range));
    }
}
