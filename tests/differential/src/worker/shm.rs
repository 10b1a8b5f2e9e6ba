//! Shared memory commands.

use crate::{check, parse, Args, Reply};
use libc::{c_int, c_void, shmid_ds};

/// Where scripts attach at addresses of their own choice; nothing else maps anything there.
const RANGE: usize = 0x5200_0000_0000;
/// `fixN` is this far from `fixN+1`.
const STRIDE: usize = 1 << 20;
/// A command of shmctl that the libc crate does not have.
const SHM_INFO: c_int = 14;
/// An address at which nothing is mapped.
const BAD: usize = 8;

/// Where the last attachment under each script name (`a0`, `a1`...) came to lie.
#[derive(Default)]
pub struct Attachments {
    places: Vec<(String, usize)>,
}

impl Attachments {
    fn find(&self, name: &str) -> Option<usize> {
        self.places.iter().rev().find(|(known, _)| known == name).map(|(_, address)| *address)
    }

    /// An address as scripts write it: `null`, `bad`, `fixN`, `aN`, each with `+OFFSET`. An attachment that
    /// was never made stands for an address where none is.
    fn address(&self, text: &str) -> usize {
        let (base, offset) = text.split_once('+').unwrap_or((text, "0"));
        let offset = parse(offset).expect("an offset") as usize;
        let start = match base {
            "null" => 0,
            "bad" => BAD,
            _ if base.starts_with("fix") => RANGE + STRIDE * parse(&base[3..]).expect("a number") as usize,
            _ => self.find(base).unwrap_or(RANGE + 64 * STRIDE),
        };
        start + offset
    }
}

/// Checks that the range for fixed addresses is free, so that results don't depend on the layout.
pub fn reserve_range() {
    // SAFETY: a fresh anonymous mapping that nothing refers to; it is unmapped at once.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
        let found = libc::mmap(RANGE as *mut c_void, 128 * STRIDE, libc::PROT_NONE, flags, -1, 0);
        assert_eq!(found as usize, RANGE, "the range for fixed addresses is taken");
        libc::munmap(found, 128 * STRIDE);
    }
}

pub fn get(args: &mut Args) -> Reply {
    let (key, size, flags) = (args.int(), args.number() as usize, args.int());
    // SAFETY: no memory is passed.
    let id = check(unsafe { libc::shmget(key, size, flags) }.into())?;
    Ok(format!("id=!{id}"))
}

/// The protection of the mapping in which this address lies, as /proc/self/maps words it.
fn protection(address: usize) -> String {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("/proc is mounted");
    let holds = |line: &&str| {
        let ends = line.split(' ').next().and_then(|range| range.split_once('-'));
        let parsed = ends.and_then(|(start, end)| {
            Some((usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?))
        });
        parsed.is_some_and(|(start, end)| (start..end).contains(&address))
    };
    let line = maps.lines().find(holds);
    line.and_then(|line| line.split_whitespace().nth(1)).unwrap_or("unmapped").to_owned()
}

/// `shmat NAME ID ADDRESS FLAGS`
pub fn attach(attachments: &mut Attachments, args: &mut Args) -> Reply {
    let (name, id, place, flags) = (args.word(), args.int(), args.word(), args.int());
    let wanted = attachments.address(place);
    if flags & libc::SHM_REMAP != 0 {
        // Vshmem maps over something only for a process that it has told how much. Permission to attach is
        // permission to ask.
        let mut ds = empty();
        // SAFETY: the structure is what the command fills.
        unsafe { libc::shmctl(id, libc::IPC_STAT, &mut ds) };
    }
    // SAFETY: scripts only ask for addresses in the range that is theirs, for attachments that they
    // made there, or for ones that the call must refuse.
    let found = unsafe { libc::shmat(id, wanted as *const c_void, flags) } as usize;
    check(found as i64)?;
    attachments.places.push((name.to_owned(), found));
    let place = match wanted {
        0 => "any".to_owned(),
        _ => format!("{place}{:+}", found as i64 - wanted as i64),
    };
    Ok(format!("at={place} aligned={} {}", found % 4096 == 0, protection(found)))
}

/// `shmdt ADDRESS`
pub fn detach(attachments: &Attachments, args: &mut Args) -> Reply {
    let address = attachments.address(args.word());
    // SAFETY: nothing in the worker keeps references into attachments.
    check(unsafe { libc::shmdt(address as *const c_void) }.into()).map(|_| String::new())
}

/// A pipe through which memory is touched: the kernel says EFAULT where an access would be a fault.
fn with_pipe<T>(work: impl FnOnce(c_int, c_int) -> T) -> T {
    let mut ends = [0; 2];
    // SAFETY: the array has room for the two descriptors.
    let made = unsafe { libc::pipe(ends.as_mut_ptr()) };
    assert_eq!(made, 0, "no pipe can be had");
    let result = work(ends[0], ends[1]);
    // SAFETY: both descriptors are ours and used no more.
    unsafe {
        libc::close(ends[0]);
        libc::close(ends[1]);
    }
    result
}

/// `peek ADDRESS LENGTH`: the bytes there, run-length coded.
pub fn peek(attachments: &Attachments, args: &mut Args) -> Reply {
    let (address, length) = (attachments.address(args.word()), args.number() as usize);
    let mut bytes = vec![0u8; length];
    with_pipe(|read, write| {
        // SAFETY: the kernel checks the address that the script gave; the buffer has `length` bytes.
        unsafe {
            check(libc::write(write, address as *const c_void, length) as i64)?;
            check(libc::read(read, bytes.as_mut_ptr().cast(), length) as i64)
        }
    })?;
    let mut runs: Vec<(u8, usize)> = Vec::new();
    for byte in bytes {
        match runs.last_mut() {
            Some((last, count)) if *last == byte => *count += 1,
            _ => runs.push((byte, 1)),
        }
    }
    let words: Vec<String> = runs.iter().map(|(byte, count)| format!("{byte}x{count}")).collect();
    Ok(words.join(","))
}

/// `poke ADDRESS LENGTH BYTE`
pub fn poke(attachments: &Attachments, args: &mut Args) -> Reply {
    let (address, length) = (attachments.address(args.word()), args.number() as usize);
    let bytes = vec![args.number() as u8; length];
    with_pipe(|read, write| {
        // SAFETY: the kernel checks the address that the script gave, and scripts give none of the
        // worker's own memory; the buffer has `length` bytes.
        unsafe {
            check(libc::write(write, bytes.as_ptr().cast(), length) as i64)?;
            check(libc::read(read, address as *mut c_void, length) as i64)
        }
    })
    .map(|_| String::new())
}

fn empty() -> shmid_ds {
    // SAFETY: shmid_ds is plain numbers; all zeros is a valid value.
    unsafe { std::mem::zeroed() }
}

fn describe(ds: &shmid_ds) -> String {
    let perm = &ds.shm_perm;
    format!(
        "key={:#x} uid={} gid={} cuid={} cgid={} mode={:#o} size={} atime=@{} dtime=@{} ctime=@{} cpid=%{} lpid=%{} nattch={}",
        perm.__key, perm.uid, perm.gid, perm.cuid, perm.cgid, perm.mode, ds.shm_segsz, ds.shm_atime, ds.shm_dtime,
        ds.shm_ctime, ds.shm_cpid, ds.shm_lpid, ds.shm_nattch
    )
}

fn shmctl(id: c_int, command: c_int, ds: *mut shmid_ds) -> Result<i32, i32> {
    // SAFETY: the callers pass a structure that is large enough for the command, or an address
    // that the call must refuse.
    check(unsafe { libc::shmctl(id, command, ds) }.into()).map(|value| value as i32)
}

/// The structure that SHM_INFO fills in.
#[repr(C)]
#[derive(Default)]
struct Usage {
    used_ids: c_int,
    shm_tot: u64,
    shm_rss: u64,
    shm_swp: u64,
    swap_attempts: u64,
    swap_successes: u64,
    spare: [u64; 8],
}

/// The structure that IPC_INFO fills in.
#[repr(C)]
#[derive(Default)]
struct Limits {
    shmmax: u64,
    shmmin: u64,
    shmmni: u64,
    shmseg: u64,
    shmall: u64,
    unused: [u64; 4],
    spare: [u64; 8],
}

/// `shmctl ID COMMAND [ARGUMENTS | fault]`
pub fn control(args: &mut Args) -> Reply {
    let (id, command) = (args.int(), args.int());
    if args.take("fault") {
        return shmctl(id, command, BAD as *mut shmid_ds).map(|value| format!("value={value}"));
    }
    let mut ds = empty();
    match command {
        libc::IPC_STAT => {
            shmctl(id, command, &mut ds)?;
            Ok(describe(&ds))
        }
        libc::IPC_SET => {
            (ds.shm_perm.uid, ds.shm_perm.gid) = (args.int() as u32, args.int() as u32);
            ds.shm_perm.mode = args.int() as _;
            shmctl(id, command, &mut ds).map(|value| format!("value={value}"))
        }
        libc::IPC_INFO => {
            let mut limits = Limits::default();
            shmctl(id, command, std::ptr::from_mut(&mut limits).cast())?;
            Ok(format!(
                "max={} min={} mni={} seg={} all={}",
                limits.shmmax, limits.shmmin, limits.shmmni, limits.shmseg, limits.shmall
            ))
        }
        SHM_INFO => {
            let mut usage = Usage::default();
            shmctl(id, command, std::ptr::from_mut(&mut usage).cast())?;
            // What is resident or swapped is the memory manager's matter and differs between runs.
            Ok(format!("used={} pages={}", usage.used_ids, usage.shm_tot))
        }
        _ => shmctl(id, command, &mut ds).map(|value| format!("value={value}")),
    }
}

/// `shmscan COMMAND`: what SHM_STAT or SHM_STAT_ANY say of every index.
pub fn scan(args: &mut Args) -> Reply {
    let command = args.int();
    let mut usage = Usage::default();
    let highest = shmctl(0, SHM_INFO, std::ptr::from_mut(&mut usage).cast())?;
    let mut lines = Vec::new();
    for index in 0..=highest {
        let mut ds = empty();
        match shmctl(index, command, &mut ds) {
            Ok(id) => lines.push(format!("id=!{id} {}", describe(&ds))),
            Err(libc::EINVAL) => {} // a hole
            Err(errno) => lines.push(format!("err={errno}")),
        }
    }
    Ok(lines.join(" ; "))
}
