//! The population of pools with memory before machines get them: from certain nodes, in certain pages, by
//! several threads.
//!
//! A pool's file is mapped, its nodes are set for the mapping (mbind(2), which holds for the file, and for
//! all that touch it later), and threads that run near to these have the kernel fill parts of it, without
//! writing anything (MADV_POPULATE_WRITE): what was written into the pool stays. Transparent huge pages take
//! no mount option and no setting: the first page of each 2 MiB is filled, and the kernel is told to make
//! them one (MADV_COLLAPSE, Linux 6.1).

use rustix::mm::{mmap, mmap_anonymous, munmap, MapFlags, ProtFlags};
use std::ffi::c_void;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use vshmem_base::error::{error, Error, Explain, Result};
use vshmem_base::{interrupt, size};
use vshmem_hypervisor::launcher::options::Progress;
use vshmem_hypervisor::shared::affinity;
use vshmem_placement::binding::{self, Bind, Resident};
use vshmem_placement::cpuset::CpuSet;
use vshmem_placement::pages::{Pages, PoolNodes, Populated};

/// The size of transparent huge pages.
const HUGE: u64 = 2 << 20;
/// Bytes that a thread fills at a time, at the least.
const MIN_PART: u64 = 16 << 20;
/// Time between reports of progress.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// Threads that are of use.
const MAX_THREADS: usize = 16;
/// The file of the nodes that have memory.
const WITH_MEMORY: &str = "/sys/devices/system/node/has_memory";

/// The memory that a pool is to have.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// The pool, for people.
    pub name: &'a str,
    /// The pages that it is in.
    pub pages: Option<Pages>,
    /// The nodes that it comes from.
    pub node: Option<PoolNodes>,
    /// It must come from these nodes.
    pub strict: bool,
    /// All of it is taken now.
    pub fill: bool,
    /// Number of threads that take it; 0: as many as there are cores.
    pub threads: u32,
}

/// Binds the memory of a pool's file to its nodes, and takes all of it if that is wanted. Returns the time
/// and the nodes of the memory; `None` if nothing was taken, as before Linux 5.14.
///
/// # Errors
/// There are no such nodes, or they have too little memory.
pub fn populate(
    file: &Path,
    wanted: Wanted<'_>,
    report: &mut dyn FnMut(Progress),
) -> Result<Option<(Populated, Resident)>> {
    let name = wanted.name;
    let nodes = wanted.node.map(|node| nodes(name, node)).transpose()?;
    let failed = || format!("could not map the pool {name}");
    let mapping = Mapping::of(file, wanted.pages).explain(failed)?;
    let job =
        Job { mapping: &mapping, wanted, nodes: nodes.as_ref(), todo: Remaining::new(&mapping, wanted) };
    job.bind_all()?;
    if !wanted.fill {
        return Ok(None);
    }
    let Some(populated) = job.fill(report)? else { return Ok(None) };
    // What was bound part by part has one policy again.
    job.bind_all()?;
    let resident = binding::own_memory(mapping.start, mapping.length as usize)?;
    report(Progress::Message(format!("took the memory of the pool {name}: {populated}")));
    Ok(Some((populated, resident)))
}

/// The nodes that are meant.
fn nodes(name: &str, node: PoolNodes) -> Result<CpuSet> {
    let text = fs::read_to_string(WITH_MEMORY).unwrap_or_else(|_| "0".into());
    let all: CpuSet = text.trim().parse().unwrap_or_default();
    match node {
        PoolNodes::Interleave => Ok(all),
        PoolNodes::Node(number) if all.contains(number) => Ok(CpuSet::from_iter([number])),
        PoolNodes::Node(number) => {
            Err(error!("the memory of the pool {name} can't come from node {number}: this host has {all}"))
        }
    }
}

/// A file's mapping, which ends with it.
struct Mapping {
    start: usize,
    length: u64,
    /// The size of the pages that its file is made of.
    page: u64,
}

impl Mapping {
    /// Maps a file so that it can be in huge pages.
    fn of(path: &Path, pages: Option<Pages>) -> io::Result<Mapping> {
        let file = File::options().read(true).write(true).open(path)?;
        let length = file.metadata()?.len();
        let page = pages.and_then(Pages::reserved).unwrap_or(4096);
        let align = page.max(HUGE) as usize;
        let (access, size) = (ProtFlags::READ | ProtFlags::WRITE, length as usize);
        let room = size.next_multiple_of(4096) + align;
        // SAFETY: the kernel chooses the place of a new mapping. The second one lies in it, and what is left
        // at both ends goes.
        unsafe {
            let at =
                mmap_anonymous(std::ptr::null_mut(), room, ProtFlags::empty(), MapFlags::PRIVATE)? as usize;
            let start = at.next_multiple_of(align);
            let end = start + size.next_multiple_of(4096);
            let flags = MapFlags::SHARED | MapFlags::FIXED;
            let mapped = mmap(start as *mut c_void, size, access, flags, &file, 0);
            for (from, to) in [(at, start), (end, at + room)] {
                if to > from {
                    munmap(from as *mut c_void, to - from)?;
                }
            }
            mapped?;
            Ok(Mapping { start, length, page })
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it is ours, and nothing refers to it any more.
        let _ = unsafe { munmap(self.start as *mut c_void, self.length as usize) };
    }
}

/// The part of a pool that is still to be filled.
struct Remaining {
    next: AtomicU64,
    done: AtomicU64,
    stop: AtomicBool,
    /// Bytes that a thread takes at a time.
    part: u64,
    failed: Mutex<Option<io::Error>>,
}

impl Remaining {
    fn new(mapping: &Mapping, wanted: Wanted<'_>) -> Remaining {
        // Where 2 MiB come from one node each, all of a part do.
        let by_turns = wanted.node == Some(PoolNodes::Interleave);
        let part = match wanted.pages {
            Some(Pages::Transparent) if by_turns => HUGE,
            _ => MIN_PART.max(mapping.page),
        };
        Remaining { next: 0.into(), done: 0.into(), stop: false.into(), part, failed: Mutex::default() }
    }
}

struct Job<'a> {
    mapping: &'a Mapping,
    wanted: Wanted<'a>,
    nodes: Option<&'a CpuSet>,
    todo: Remaining,
}

impl Job<'_> {
    /// Binds all of the memory to its nodes.
    fn bind_all(&self) -> Result<()> {
        let Some(nodes) = self.nodes else { return Ok(()) };
        let how = match (self.wanted.node, self.wanted.strict) {
            (Some(PoolNodes::Interleave), _) => Bind::Interleaved,
            (_, true) => Bind::Strictly,
            (_, false) => Bind::Preferably,
        };
        let bound = binding::bind(self.mapping.start, self.mapping.length as usize, how, nodes);
        bound
            .explain(|| format!("the memory of the pool {} can't be bound to node {nodes}", self.wanted.name))
    }

    /// The processors that threads run on; empty: any.
    fn cores(&self) -> CpuSet {
        match (self.wanted.node, self.nodes) {
            (Some(PoolNodes::Node(_)), Some(nodes)) => {
                nodes.iter().flat_map(|node| affinity::near(node).iter().collect::<Vec<_>>()).collect()
            }
            _ => CpuSet::default(),
        }
    }

    /// Fills all of it, and tells how far it is. `None` if the kernel can't do that.
    fn fill(&self, report: &mut dyn FnMut(Progress)) -> Result<Option<Populated>> {
        let cores = self.cores();
        let available = if cores.is_empty() { affinity::available_cores().len() } else { cores.len() };
        let parts = self.mapping.length.div_ceil(self.todo.part);
        let wanted =
            if self.wanted.threads > 0 { self.wanted.threads as usize } else { available.min(MAX_THREADS) };
        let threads = (wanted.max(1) as u64).min(parts) as u32;
        let begun = Instant::now();
        let so_far = |bytes| {
            let milliseconds = begun.elapsed().as_millis().max(1) as u64;
            Populated { bytes, milliseconds, threads }
        };
        let (ended, ends) = channel::<()>();
        std::thread::scope(|scope| {
            for _ in 0..threads {
                let (ended, cores) = (ended.clone(), &cores);
                scope.spawn(move || {
                    if !cores.is_empty() {
                        // Elsewhere it takes longer, and does the same.
                        let _ = affinity::set_allowed(0, cores);
                    }
                    self.fill_parts();
                    drop(ended);
                });
            }
            drop(ended);
            // No thread says anything: the last one hangs up.
            while let Err(std::sync::mpsc::RecvTimeoutError::Timeout) = ends.recv_timeout(REPORT_INTERVAL) {
                if interrupt::signal().is_some() {
                    self.todo.stop.store(true, Ordering::Relaxed);
                }
                let (all, now) =
                    (size::show(self.mapping.length), so_far(self.todo.done.load(Ordering::Relaxed)));
                report(Progress::Message(format!("taking {all} for the pool {}: {now}", self.wanted.name)));
            }
        });
        interrupt::check()?;
        let done = so_far(self.mapping.length);
        match self.todo.failed.lock().unwrap_or_else(|broken| broken.into_inner()).take() {
            None => Ok(Some(done)),
            Some(why) if why.raw_os_error() == Some(libc::EINVAL) => Ok(None),
            Some(why) => Err(self.too_little(&why)),
        }
    }

    fn too_little(&self, why: &io::Error) -> Error {
        let Wanted { name, node, pages, .. } = self.wanted;
        let from = node.map_or(String::new(), |node| format!(" from {node}"));
        let kind = pages.map_or(String::new(), |pages| format!(" in {pages}"));
        let why = match why.raw_os_error() {
            // As a file system says that it is full, and a page table that there is no memory.
            Some(libc::EFAULT | libc::ENOMEM) => "there is no more memory for it".into(),
            _ => why.to_string(),
        };
        let (had, all) = (self.todo.done.load(Ordering::Relaxed), self.mapping.length);
        error!(
            "the pool {name} got {} of its {}{kind}{from}: {why}",
            size::show(had.min(all)),
            size::show(all)
        )
        .hint("Free some, make a smaller pool, or take its memory from anywhere.")
    }

    /// Fills part after part, until none is left.
    fn fill_parts(&self) {
        let Remaining { next, done, stop, part, failed } = &self.todo;
        while !stop.load(Ordering::Relaxed) {
            let from = next.fetch_add(*part, Ordering::Relaxed);
            if from >= self.mapping.length {
                break;
            }
            let length = (*part).min(self.mapping.length - from);
            match self.fill_part(from, length) {
                Ok(()) => {
                    done.fetch_add(length, Ordering::Relaxed);
                }
                Err(why) => {
                    failed.lock().unwrap_or_else(|broken| broken.into_inner()).get_or_insert(why);
                    stop.store(true, Ordering::Relaxed);
                }
            }
        }
    }

    fn fill_part(&self, from: u64, length: u64) -> io::Result<()> {
        let at = self.mapping.start + from as usize;
        if self.wanted.pages == Some(Pages::Transparent) {
            if let (Some(PoolNodes::Interleave), Some(nodes)) = (self.wanted.node, self.nodes) {
                let turn = (from / HUGE) as usize % nodes.len().max(1);
                let node: CpuSet = nodes.iter().nth(turn).into_iter().collect();
                binding::bind(at, length as usize, Bind::Preferably, &node)?;
            }
            collapse(at, length as usize)?;
        }
        advise(at, length as usize, libc::MADV_POPULATE_WRITE)
    }
}

/// Has a range be in transparent huge pages, as far as the kernel makes some: which it was is looked up
/// later.
fn collapse(at: usize, length: usize) -> io::Result<()> {
    // What is wholly empty is not made one.
    for first in (at..at + length).step_by(HUGE as usize) {
        advise(first, 4096, libc::MADV_POPULATE_WRITE)?;
    }
    let whole = length / HUGE as usize * HUGE as usize;
    if whole > 0 {
        let _ = advise(at, whole, libc::MADV_COLLAPSE);
    }
    Ok(())
}

/// Gives the kernel advice about a range of a mapping of ours, which changes no contents.
fn advise(at: usize, length: usize, advice: i32) -> io::Result<()> {
    loop {
        // SAFETY: the kernel checks the range; neither piece of advice takes anything away.
        if unsafe { libc::madvise(at as *mut c_void, length, advice) } == 0 {
            return Ok(());
        }
        let why = io::Error::last_os_error();
        if why.raw_os_error() != Some(libc::EINTR) || interrupt::signal().is_some() {
            return Err(why);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::MetadataExt;
    use std::path::PathBuf;

    const MIB: u64 = 1 << 20;

    /// A file without memory, which is removed at the end.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str, length: u64) -> Scratch {
            let path = Path::new("/dev/shm").join(format!("vshmem-populate-{name}-{}", std::process::id()));
            File::create(&path).unwrap().set_len(length).unwrap();
            Scratch(path)
        }

        fn allocated(&self) -> u64 {
            fs::metadata(&self.0).unwrap().blocks() * 512
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.0);
        }
    }

    const PLAIN: Wanted<'_> =
        Wanted { name: "p", pages: None, node: None, strict: false, fill: true, threads: 1 };

    fn populated(file: &Scratch, wanted: Wanted<'_>) -> Result<Option<(Populated, Resident)>> {
        populate(&file.0, wanted, &mut |_| ())
    }

    #[test]
    fn all_of_a_pool_is_taken_by_as_many_threads_as_wanted() {
        for threads in [1, 2] {
            let file = Scratch::new("threads", 64 * MIB);
            // What was written before stays.
            fs::write(&file.0, "pool").unwrap();
            File::options().write(true).open(&file.0).unwrap().set_len(64 * MIB).unwrap();
            let (done, there) = populated(&file, Wanted { threads, ..PLAIN }).unwrap().unwrap();
            assert_eq!((done.bytes, done.threads, file.allocated()), (64 * MIB, threads, 64 * MIB));
            assert_eq!(there.bytes(), 64 * MIB);
            assert!(fs::read(&file.0).unwrap().starts_with(b"pool"));
            // Noise decides which is faster here: only told.
            println!("{done}");
        }
    }

    #[test]
    fn memory_comes_from_the_node_that_was_asked_for() {
        let here = nodes("p", PoolNodes::Interleave).unwrap();
        if binding::check_permitted().is_err() {
            return;
        }
        let alone = |node| (Some(PoolNodes::Node(node)), CpuSet::from_iter([node]));
        let mut all: Vec<_> = here.iter().map(alone).collect();
        all.push((Some(PoolNodes::Interleave), here.clone()));
        for ((node, on), strict) in all.into_iter().flat_map(|it| [(it.clone(), true), (it, false)]) {
            let file = Scratch::new("node", 8 * MIB);
            let wanted = Wanted { node, strict, ..PLAIN };
            // Without taking it, it is only said.
            assert!(populated(&file, Wanted { fill: false, ..wanted }).unwrap().is_none());
            assert_eq!(file.allocated(), 0);
            // The file has this policy for all processes that touch it.
            let touched = std::iter::repeat_n(1u8, 8 * MIB as usize).collect::<Vec<_>>();
            fs::OpenOptions::new().write(true).open(&file.0).unwrap().write_all(&touched).unwrap();
            let (_, there) = populated(&file, Wanted { node: None, ..wanted }).unwrap().unwrap();
            assert_eq!((there.on(), there.bytes()), (on.clone(), 8 * MIB), "{node:?} {strict}");
            let file = Scratch::new("node", 8 * MIB);
            let (_, there) = populated(&file, wanted).unwrap().unwrap();
            assert_eq!((there.on(), there.bytes()), (on, 8 * MIB), "{node:?} {strict}");
        }
        let file = Scratch::new("none", 8 * MIB);
        let why = populated(&file, Wanted { node: Some(PoolNodes::Node(1000)), ..PLAIN }).unwrap_err();
        assert!(why.to_string().contains("can't come from node 1000: this host has"), "{why}");
    }

    /// Kernels older than 6.1 make none, and say so by what is found.
    #[test]
    fn a_pool_can_be_in_transparent_huge_pages() {
        for node in [None, Some(PoolNodes::Interleave)] {
            if node.is_some() && binding::check_permitted().is_err() {
                continue;
            }
            let file = Scratch::new("transparent", 16 * MIB);
            let wanted = Wanted { pages: Some(Pages::Transparent), node, ..PLAIN };
            let (_, there) = populated(&file, wanted).unwrap().unwrap();
            println!("{}", there.in_pages());
            assert_eq!((there.bytes(), file.allocated()), (16 * MIB, 16 * MIB));
            assert!(there.transparent_huge <= 16 * MIB && there.transparent_huge % HUGE == 0);
            if node.is_some() {
                assert_eq!(there.on(), nodes("p", PoolNodes::Interleave).unwrap());
            }
        }
    }
}
