//! Processes for the checks.

use core::time::Duration;
use std::format;
use std::string::{String, ToString};
use std::time::Instant;

/// Time that a check waits for what must happen at once.
const CHECK_TIME: Duration = Duration::from_secs(10);

/// Waits until `condition` holds; the kernel may drop a lock a moment after a process was reaped.
pub fn soon(mut condition: impl FnMut() -> bool, what: &str) -> Result<(), String> {
    let start = Instant::now();
    while !condition() {
        if start.elapsed() > CHECK_TIME {
            return Err(format!("{what}: not within {} s", CHECK_TIME.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Lives on after the parent's end until `condition` holds, or the process's alarm rings.
pub fn linger(mut condition: impl FnMut() -> bool) {
    while !condition() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Lets this process outlive its parent.
pub fn outlive_parent() {
    // SAFETY: concerns this process only.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, 0) };
}

/// Memory that a process and its children share, by which a child tells why it failed when it has no
/// descriptor left, and by which both say how far they are.
struct Board {
    page: *mut u8,
}

/// Bytes of a board; the last one counts the steps of the child, the one before those of the parent.
const BOARD: usize = 4096;
const CHILD_STEP: usize = BOARD - 1;
const PARENT_STEP: usize = BOARD - 2;

impl Board {
    fn new() -> Result<Board, String> {
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping.
        let page = unsafe {
            libc::mmap(core::ptr::null_mut(), BOARD, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        if page == libc::MAP_FAILED {
            return Err("no memory for a child's board".into());
        }
        Ok(Board { page: page.cast() })
    }

    fn get(&self, at: usize) -> u8 {
        // SAFETY: inside the mapping, which lives as long as `self`.
        unsafe { self.page.add(at).read_volatile() }
    }

    fn put(&self, at: usize, value: u8) {
        // SAFETY: as above.
        unsafe { self.page.add(at).write_volatile(value) };
    }

    fn message(&self) -> String {
        let bytes: std::vec::Vec<u8> =
            (0..PARENT_STEP).map(|at| self.get(at)).take_while(|&byte| byte != 0).collect();
        String::from_utf8_lossy(&bytes).to_string()
    }

    fn set_message(&self, text: &str) {
        for (at, &byte) in text.as_bytes().iter().take(PARENT_STEP - 1).enumerate() {
            self.put(at, byte);
        }
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`, and nothing else refers to it.
        unsafe { libc::munmap(self.page.cast(), BOARD) };
    }
}

/// A child's view of its parent.
pub struct Inside<'a> {
    board: &'a Board,
    heard: core::cell::Cell<u8>,
}

impl Inside<'_> {
    /// Tells the parent that the next step is reached.
    pub fn say(&self) {
        self.board.put(CHILD_STEP, self.board.get(CHILD_STEP) + 1);
    }

    /// Waits until the parent tells us to go on.
    pub fn hear(&self) -> Result<(), String> {
        let next = self.heard.get() + 1;
        self.heard.set(next);
        soon(|| self.board.get(PARENT_STEP) >= next, "the parent's word")
    }

    /// Does nothing until somebody kills this process.
    pub fn wait_for_death(&self) -> ! {
        loop {
            // SAFETY: just sleeps.
            unsafe { libc::pause() };
        }
    }
}

/// The end of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// By exit, with this status.
    Exited(i32),
    /// By this signal.
    Killed(i32),
}

/// A child of this process. It is killed and reaped when this goes out of scope.
pub struct Child {
    pid: i32,
    board: Board,
    heard: u8,
    reaped: bool,
}

impl Child {
    /// Forks a child that runs `body` and exits.
    pub fn start(body: impl FnOnce(&Inside) -> Result<(), String>) -> Result<Child, String> {
        let board = Board::new()?;
        // SAFETY: the checks run in one thread, so the child may use everything that it inherits.
        match unsafe { libc::fork() } {
            -1 => Err("fork failed".into()),
            0 => {
                die_quietly();
                let inside = Inside { board: &board, heard: core::cell::Cell::new(0) };
                let status = match body(&inside) {
                    Ok(()) => 0,
                    Err(message) => {
                        board.set_message(&message);
                        1
                    }
                };
                // SAFETY: ends this process.
                unsafe { libc::_exit(status) }
            }
            pid => Ok(Child { pid, board, heard: 0, reaped: false }),
        }
    }

    /// Waits until the child has said one more thing.
    pub fn hear(&mut self) -> Result<(), String> {
        self.heard += 1;
        let heard = self.heard;
        let start = Instant::now();
        while self.board.get(CHILD_STEP) < heard {
            let mut info = core::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
            // SAFETY: looks whether the child has ended, without reaping it.
            let ended = unsafe {
                let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
                libc::waitid(libc::P_PID, self.pid as u32, info.as_mut_ptr(), flags) == 0
                    && info.assume_init().si_pid() == self.pid
            };
            if ended && self.board.get(CHILD_STEP) < heard {
                return Err(format!("the child ended too early: {}", self.board.message()));
            }
            if start.elapsed() > CHECK_TIME {
                return Err("the child said nothing".into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Tells the child to go on.
    pub fn say(&self) {
        self.board.put(PARENT_STEP, self.board.get(PARENT_STEP) + 1);
    }

    /// Kills the child and waits for its end.
    pub fn kill(mut self) -> End {
        // SAFETY: our child, which has not been reaped, so the number is still its.
        unsafe { libc::kill(self.pid, libc::SIGKILL) };
        self.reap()
    }

    /// Waits for the child's end.
    pub fn wait(mut self) -> (End, String) {
        let end = self.reap();
        (end, self.board.message())
    }

    fn reap(&mut self) -> End {
        let mut status = 0;
        // SAFETY: waits for our child.
        while unsafe { libc::waitpid(self.pid, &mut status, 0) } == -1 {}
        self.reaped = true;
        if libc::WIFSIGNALED(status) {
            End::Killed(libc::WTERMSIG(status))
        } else {
            End::Exited(libc::WEXITSTATUS(status))
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.reaped {
            // SAFETY: as in `kill`.
            unsafe { libc::kill(self.pid, libc::SIGKILL) };
            self.reap();
        }
    }
}

/// Lets signals end this process at once, without a core file; it ends with its parent, and after a minute at
/// the latest.
fn die_quietly() {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: concerns this child only.
    unsafe {
        libc::signal(libc::SIGSEGV, libc::SIG_DFL);
        libc::signal(libc::SIGBUS, libc::SIG_DFL);
        libc::setrlimit(libc::RLIMIT_CORE, &none);
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::alarm(60);
    }
}

/// Runs `body` in a child of its own; its failure is the result.
pub fn in_child(body: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    match Child::start(|_| body())?.wait() {
        (End::Exited(0), _) => Ok(()),
        (End::Exited(_), message) => Err(message),
        (End::Killed(signal), _) => Err(format!("ended by signal {signal}")),
    }
}
