//! Checks: a source is seen as long as anything is mapped by it.

use core::ptr::null_mut;

use super::child::{soon, Child};
use super::subject::{ensure, same, Check, Open, Outcome, Subject, Verdict, READ_WRITE};
use crate::Source;

pub(super) const CHECKS: &[Check] = &[
    Check { name: "source: mapped as long as a range is", make: own },
    Check { name: "source: mapped as long as a child has the range", make: inherited },
    Check { name: "source: mapped as long as a moved range is", make: moved },
    Check { name: "source: mapped as long as a range that can be read is", make: read_only },
    Check { name: "source: a descriptor that was replaced is not taken for it", make: replaced },
];

/// Opens a source, and maps a page by it.
fn map(pool: &Open, prot: i32) -> Result<(Source, usize), String> {
    let source = pool.handle.open_source().ok_or("no source can be opened")?;
    let mapped = pool.handle.map_by(Some(&source), pool.page_at(2), pool.page as usize, None, prot);
    let at = mapped.map_err(|error| format!("{error}"))?.ok_or("the source is closed")?;
    Ok((source, at as usize))
}

fn unmap(pool: &Open, at: usize) {
    // SAFETY: mapped by a check, which does not use it any more.
    unsafe { pool.handle.unmap(at as *mut _, pool.page as usize) };
}

fn check(pool: &Open, source: &Source, mapped: bool) -> Result<(), String> {
    same(pool.handle.is_mapped(source.number()), Some(mapped), "whether the source is mapped")
}

fn own(subject: &Subject) -> Outcome {
    let (pool, other) = (subject.open()?, subject.open()?);
    let (source, at) = map(&pool, READ_WRITE)?;
    let (second, second_at) = map(&pool, READ_WRITE)?;
    ensure(source.number() != second.number(), "both have one number")?;
    unmap(&pool, second_at);
    check(&other, &second, true)?;
    pool.handle.close_source(&second);
    check(&other, &second, false)?;
    pool.handle.close_source(&source);
    check(&other, &source, true)?;
    check(&pool, &source, true)?;
    unmap(&pool, at);
    check(&other, &source, false)?;
    pool.close();
    other.close();
    Ok(Verdict::Passed)
}

fn inherited(subject: &Subject) -> Outcome {
    let pool = subject.open()?;
    let (source, at) = map(&pool, READ_WRITE)?;
    pool.handle.close_source(&source);
    let child = Child::start(|inside| inside.wait_for_death())?;
    unmap(&pool, at);
    check(&pool, &source, true)?;
    child.kill();
    soon(|| pool.handle.is_mapped(source.number()) == Some(false), "the end of the source")?;
    pool.close();
    Ok(Verdict::Passed)
}

fn moved(subject: &Subject) -> Outcome {
    let pool = subject.open()?;
    let (source, at) = map(&pool, READ_WRITE)?;
    let len = pool.page as usize;
    // SAFETY: reserves room, to which what was mapped above is moved.
    let to = unsafe {
        let room =
            libc::mmap(null_mut(), len, libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0);
        libc::mremap(at as *mut _, len, len, libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED, room)
    };
    if to == libc::MAP_FAILED {
        pool.close();
        return Ok(Verdict::Skipped("ranges can't be moved here"));
    }
    pool.handle.close_source(&source);
    check(&pool, &source, true)?;
    unmap(&pool, to as usize);
    check(&pool, &source, false)?;
    pool.close();
    Ok(Verdict::Passed)
}

fn read_only(subject: &Subject) -> Outcome {
    let pool = subject.open()?;
    let (source, at) = map(&pool, libc::PROT_READ)?;
    pool.handle.close_source(&source);
    check(&pool, &source, true)?;
    unmap(&pool, at);
    check(&pool, &source, false)?;
    pool.close();
    Ok(Verdict::Passed)
}

fn replaced(subject: &Subject) -> Outcome {
    let (pool, other) = (subject.open()?, subject.open()?);
    let (source, at) = map(&pool, READ_WRITE)?;
    unmap(&pool, at);
    let mut stat = core::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: finds the descriptor with the source's lock, by the description's position, and puts the null
    // device in its place.
    let found = unsafe {
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
        let found = (3..4096).find(|fd| libc::lseek(*fd, 0, libc::SEEK_CUR) == source.number() as i64);
        let done = found.map(|fd| libc::dup2(null, fd) == fd && libc::fstat(fd, stat.as_mut_ptr()) == 0);
        libc::close(null);
        done
    };
    let Some(done) = found else {
        pool.close();
        other.close();
        return Ok(Verdict::Skipped("the pool's file has no position"));
    };
    ensure(done, "the descriptor was not replaced")?;
    check(&other, &source, false)?;
    let mapped = pool.handle.map_by(Some(&source), pool.page_at(2), pool.page as usize, None, READ_WRITE);
    same(mapped.ok(), Some(None), "what is mapped by a source that was closed")?;
    pool.close();
    other.close();
    Ok(Verdict::Passed)
}
