//! The process that keeps a virtual processor from idling: one for each, of the lowest class, which never
//! leaves the processor of its own.

use rustix::mm::{mmap_anonymous, munmap, MapFlags, ProtFlags};
use rustix::process::{
    getpid, getppid, kill_process, set_parent_process_death_signal, setpriority_process, setsid, waitpid,
    Pid, Signal, WaitOptions,
};
use rustix::thread::{sched_setaffinity, set_name, CpuSet};
use std::ffi::CString;
use std::fs;
use std::hint::{black_box, spin_loop};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The longest time between two looks at the clock in which a process spins; a longer one is a gap.
const GAP: Duration = Duration::from_micros(20);
/// The exit code of a process that could not become one of the lowest class.
const REFUSED: u8 = 1;
/// Time between two looks whether a process is ready. Its start is not urgent.
const LOOK: Duration = Duration::from_millis(1);
/// The lowest priority among those of a class.
const LOWEST: i32 = 19;

/// The words that a process and its child share.
#[derive(Default)]
struct Shared {
    /// Nanoseconds in which it did not spin, though it was not stopped.
    gaps: AtomicU64,
    /// Counts up whenever it is stopped or continued: a gap over such a moment is none.
    turn: AtomicU32,
    /// It has a processor, and may be stopped.
    ready: AtomicBool,
}

/// A page of both.
struct Page(*mut Shared);

impl Page {
    fn new() -> io::Result<Page> {
        let (length, protection) = (size_of::<Shared>(), ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: the kernel chooses the place of a new mapping.
        let at = unsafe { mmap_anonymous(std::ptr::null_mut(), length, protection, MapFlags::SHARED) }?;
        Ok(Page(at.cast()))
    }

    fn get(&self) -> &Shared {
        // SAFETY: the mapping is ours until `self` is dropped, aligned to a page, and new pages are zero,
        // which is a valid value; its fields are atomic.
        unsafe { &*self.0 }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing refers to it any more.
        let _ = unsafe { munmap(self.0.cast(), size_of::<Shared>()) };
    }
}

/// A child that spins on a processor, or is stopped. It ends with its parent.
pub struct Spinner {
    pid: Pid,
    page: Page,
    runs: bool,
    ended: Option<&'static str>,
}

/// The times of a child since it was started, in nanoseconds.
#[derive(Clone, Copy, Default, Debug)]
pub struct Spent {
    /// The time in which it did not spin.
    pub gaps: u64,
    /// The time in which it waited for others of this kernel.
    pub waited: u64,
}

impl Spinner {
    /// Starts one on a processor, and stops it there. This process must have one thread.
    ///
    /// # Errors
    /// There can't be another process, or it is not admitted to the processor.
    pub fn start(cpu: usize) -> io::Result<Spinner> {
        let page = Page::new()?;
        let parent = getpid();
        // SAFETY: this process has one thread, as promised, so the child may go on like any other process.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                let code = match become_lowest(cpu, parent, page.get()) {
                    Ok(()) => spin(page.get()),
                    Err(_) => REFUSED,
                };
                // SAFETY: it ends the child, without what its parent does at its end.
                unsafe { libc::_exit(code.into()) }
            }
            pid => {
                let pid = Pid::from_raw(pid).expect("fork has returned a pid");
                let mut spinner = Spinner { pid, page, runs: true, ended: None };
                while !spinner.page.get().ready.load(Ordering::Relaxed) {
                    if let Some(why) = spinner.ended() {
                        return Err(io::Error::other(why));
                    }
                    std::thread::sleep(LOOK);
                }
                spinner.set(false)?;
                Ok(spinner)
            }
        }
    }

    /// Lets it spin, or stops it.
    ///
    /// # Errors
    /// It has ended.
    pub fn set(&mut self, spins: bool) -> io::Result<()> {
        if self.runs != spins {
            self.page.get().turn.fetch_add(1, Ordering::Relaxed);
            self.signal(if spins { Signal::CONT } else { Signal::STOP })?;
            self.runs = spins;
        }
        Ok(())
    }

    /// The reason for its end, if it has ended.
    pub fn ended(&mut self) -> Option<&'static str> {
        if self.ended.is_none() {
            self.ended = match waitpid(Some(self.pid), WaitOptions::NOHANG) {
                Ok(None) => None,
                Ok(Some((_, status))) if status.exit_status() == Some(REFUSED.into()) => {
                    Some("the kernel gives its process no processor, or no lowest class")
                }
                Ok(Some(_)) => Some("somebody has ended its process"),
                Err(_) => Some("its process is gone"),
            };
        }
        self.ended
    }

    /// The times of the child; `None` where the kernel does not count run delay.
    pub fn spent(&self) -> Option<Spent> {
        let text = fs::read_to_string(format!("/proc/{}/schedstat", self.pid.as_raw_nonzero())).ok()?;
        let waited = text.split_whitespace().nth(1)?.parse().ok()?;
        Some(Spent { gaps: self.page.get().gaps.load(Ordering::Relaxed), waited })
    }

    fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(kill_process(self.pid, signal)?)
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        // Its number may be another's by now.
        if self.ended.is_some() {
            return;
        }
        // Both fail only if it is gone.
        let _ = self.signal(Signal::KILL);
        let _ = waitpid(Some(self.pid), WaitOptions::empty());
    }
}

/// Makes this process one that anybody else's work goes before, and that ends with its parent.
fn become_lowest(cpu: usize, parent: Pid, shared: &Shared) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if getppid() != Some(parent) {
        return Err(io::ErrorKind::BrokenPipe.into());
    }
    obey_signals()?;
    // With a session of its own it has a scheduling group of its own (autogroup), whose weight may be the
    // least.
    setsid()?;
    leave_to_other_groups()?;
    let name = CString::new(format!("vshmem-idle/{cpu}"))?;
    set_name(&name)?;
    // So its time counts as "nice", by which monitors tell it from work.
    setpriority_process(None, LOWEST)?;
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set)?;
    // From here on it may be long until it runs, where others keep the processor busy.
    shared.ready.store(true, Ordering::Relaxed);
    // The kernel's sched_param is a number; musl has no function for this.
    let priority: libc::c_int = 0;
    // SAFETY: the kernel only reads the parameter, which lives across the call.
    if unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, libc::SCHED_IDLE, &priority) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Signals end it, though its parent reads them from a descriptor.
fn obey_signals() -> io::Result<()> {
    // SAFETY: a set of zeros is an empty one, and lives across the call.
    let failed = unsafe {
        let none: libc::sigset_t = std::mem::zeroed();
        libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut())
    };
    if failed != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Gives this session's scheduling group the least weight: classes only count within a group. Nothing has to
/// be done where the kernel has no such groups.
fn leave_to_other_groups() -> io::Result<()> {
    // An ordinary user may do this ten times a second, and others may do it, too.
    const TRIES: u32 = 100;
    const PAUSE: Duration = Duration::from_millis(110);
    for _ in 0..TRIES {
        match fs::write("/proc/self/autogroup", LOWEST.to_string()) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(PAUSE),
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => return Ok(()),
        }
    }
    Err(io::ErrorKind::TimedOut.into())
}

/// Spins until it is killed.
fn spin(shared: &Shared) -> u8 {
    // Pauses leave a core's units to its other thread. Many in a row are taken for a spin lock (pause loop
    // exiting), so there is other work between them, longer than what AMD's processors take for a row.
    const PAUSES: u32 = 16;
    const WORK: u64 = 200;
    let (mut last, mut turn) = (Instant::now(), shared.turn.load(Ordering::Relaxed));
    loop {
        for _ in 0..PAUSES {
            spin_loop();
        }
        let mut sum = 1_u64;
        for step in 0..WORK {
            sum = black_box(sum.wrapping_mul(5) ^ step);
        }
        let (now, before) = (Instant::now(), turn);
        turn = shared.turn.load(Ordering::Relaxed);
        let gap = now - last;
        if gap > GAP && turn == before {
            shared.gaps.fetch_add(gap.as_nanos() as u64, Ordering::Relaxed);
        }
        last = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpus;

    fn stat(pid: Pid, place: usize) -> String {
        let text = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap();
        let rest = text.rsplit_once(')').unwrap().1.to_owned();
        rest.split_whitespace().nth(place).unwrap().into()
    }

    fn until(what: &str, mut holds: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !holds() {
            assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Other tests' threads run beside this one's; what the child does before it spins takes no lock of
    /// theirs that fork(2) leaves behind (glibc's heap is made whole in the child).
    #[test]
    fn it_is_of_the_lowest_class_spins_stops_and_ends() {
        let allowed = fs::read_to_string("/proc/self/status").unwrap();
        let allowed = allowed.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
        let cpu = *cpus::parse(allowed).last().unwrap();
        let mut spinner = Spinner::start(cpu).unwrap();
        let pid = spinner.pid;
        until("it is stopped", || stat(pid, 0) == "T");
        spinner.set(true).unwrap();
        until("it is of the class SCHED_IDLE", || stat(pid, 38) == libc::SCHED_IDLE.to_string());
        let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).unwrap();
        assert!(status.contains(&format!("Cpus_allowed_list:\t{cpu}\n")), "{status}");
        assert_eq!((stat(pid, 16), spinner.ended()), (LOWEST.to_string(), None));
        // It has a session of its own, so the terminal's signals don't reach it.
        assert_eq!(stat(pid, 3), pid.as_raw_nonzero().to_string());
        until("it spins", || stat(pid, 11).parse::<u64>().unwrap() > 0);
        spinner.set(false).unwrap();
        until("it is stopped", || stat(pid, 0) == "T");
        let gaps = spinner.page.get().gaps.load(Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(300));
        spinner.set(true).unwrap();
        let used = stat(pid, 11).parse::<u64>().unwrap();
        until("it goes on", || stat(pid, 11).parse::<u64>().unwrap() > used);
        let waited = spinner.spent().map_or(u64::MAX, |spent| spent.waited);
        let since = spinner.page.get().gaps.load(Ordering::Relaxed) - gaps;
        assert!(
            since < 300_000_000 || since < waited,
            "the time for which it was stopped is no gap: {since}"
        );
        drop(spinner);
        assert!(fs::metadata(format!("/proc/{}", pid.as_raw_nonzero())).is_err(), "it is gone");
    }

    #[test]
    fn a_processor_that_there_is_not_is_refused() {
        let Err(why) = Spinner::start(CpuSet::MAX_CPU - 1) else { panic!("there are no so many") };
        assert!(why.to_string().contains("no processor"), "{why}");
    }
}
