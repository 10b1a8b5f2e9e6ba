//! A notice to a machine that the host's end of a channel was closed, for channels that do not report that.
//!
//! A child process waits on a pipe until this process has ended, however that happens. Then it sends the
//! machine a greeting, which ends the commands of the session, as any new greeting does. It holds the
//! channel's lock until then.

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::pipe::{pipe_with, PipeFlags};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// Time that the machine may take to make room for the greeting.
const TIMEOUT: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };

/// The notice of one channel, by the end of the pipe that keeps its child process waiting.
pub struct HangUpNotice(#[allow(dead_code)] OwnedFd);

impl HangUpNotice {
    /// Sends the greeting when this is dropped, or the process ends. The child holds `lock` until then.
    pub fn on(stream: RawFd, lock: RawFd, greeting: [u8; 32]) -> io::Result<HangUpNotice> {
        let (waits, open) = pipe_with(PipeFlags::CLOEXEC)?;
        // SAFETY: the child makes system calls only, and ends without returning.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => child(stream, lock, waits.as_raw_fd(), &greeting),
            _ => Ok(HangUpNotice(open)),
        }
    }
}

/// Runs as the child process. Makes system calls only.
fn child(stream: RawFd, lock: RawFd, waits: RawFd, greeting: &[u8; 32]) -> ! {
    // SAFETY: plain values.
    unsafe {
        libc::setsid();
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGPIPE] {
            libc::signal(signal, libc::SIG_IGN);
        }
    }
    // Among them are the pipes of other channels' children, which would never end.
    close_others([stream, lock, waits]);
    let mut byte = [0u8; 1];
    // SAFETY: the kernel writes at most one byte into the array.
    while unsafe { libc::read(waits, byte.as_mut_ptr().cast(), 1) } < 0 {}
    send(stream, greeting);
    // SAFETY: ends the process, without what the parent has registered for its end.
    unsafe { libc::_exit(0) }
}

/// Closes all other descriptors.
fn close_others(mut open: [RawFd; 3]) {
    open.sort_unstable();
    let mut first = 0;
    for fd in open.into_iter().chain([RawFd::MAX]) {
        if first < fd {
            // SAFETY: plain values; nothing uses the descriptors that are closed.
            unsafe { libc::syscall(libc::SYS_close_range, first, fd - 1, 0) };
        }
        first = fd.saturating_add(1);
    }
}

fn send(stream: RawFd, mut rest: &[u8]) {
    // SAFETY: it stays open until this process ends.
    let stream = unsafe { BorrowedFd::borrow_raw(stream) };
    while !rest.is_empty() {
        let mut entry = [PollFd::new(&stream, PollFlags::OUT)];
        if !matches!(poll(&mut entry, Some(&TIMEOUT)), Ok(1)) {
            return;
        }
        match rustix::io::write(stream, rest) {
            Ok(len) => rest = rest.get(len..).unwrap_or_default(),
            Err(Errno::WOULDBLOCK) => (),
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    /// The first one's child is not kept waiting by the second one's.
    #[test]
    fn the_greeting_is_sent_when_the_notice_is_dropped() {
        let (mut machine, host) = UnixStream::pair().expect("a pair");
        let (_other, others_host) = UnixStream::pair().expect("a pair");
        let lock = std::fs::File::open("/dev/null").expect("a file");
        let on = |stream: &UnixStream| {
            HangUpNotice::on(stream.as_raw_fd(), lock.as_raw_fd(), [7; 32]).expect("a child")
        };
        let (first, second) = (on(&host), on(&others_host));
        machine.set_nonblocking(true).expect("a socket");
        assert!(machine.read(&mut [0; 64]).is_err());
        machine.set_nonblocking(false).expect("a socket");
        let timeout = Some(Duration::from_secs(60));
        machine.set_read_timeout(timeout).expect("a socket");
        drop((first, host));
        let mut said = Vec::new();
        machine.read_to_end(&mut said).expect("the farewell, and the end");
        assert_eq!(said, [7; 32]);
        drop(second);
    }
}
