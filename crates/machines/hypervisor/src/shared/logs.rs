//! The logs of a machine's console and of its QEMU, or of another process in a sandbox. Their size is
//! limited, since a machine may print without end.

use super::set_id::Modes;
use crate::shared::log::{rotated, tail};
use rustix::fs::{flock, FlockOperation};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use vshmem_base::error::{Explain, Result};
use vshmem_base::interrupt;

/// Bytes of a log at which it is rotated; one rotated log stays.
const MAX_SIZE: usize = 256 << 10;
/// Time to wait for the latest output of a QEMU that runs: there may always be more.
const WRITE_TIMEOUT: Duration = Duration::from_secs(1);
/// Time to wait for the last output of a QEMU that has ended, even on a busy host.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(20);

/// The log of the machine's kernel and first process.
pub fn console(directory: &Path) -> PathBuf {
    directory.join("console.log")
}

/// The log of QEMU.
pub fn qemu(directory: &Path) -> PathBuf {
    directory.join("qemu.log")
}

struct Log {
    path: PathBuf,
    file: File,
    len: usize,
}

impl Log {
    fn new(path: PathBuf) -> io::Result<Log> {
        let file = File::create(&path)?;
        Ok(Log { path, file, len: 0 })
    }

    /// Appends output. Drops it if it can't be written: the machine goes on.
    fn put(&mut self, bytes: &[u8]) {
        if self.len + bytes.len() > MAX_SIZE {
            let _ = fs::rename(&self.path, rotated(&self.path));
            match Log::new(self.path.clone()) {
                Ok(new) => *self = new,
                Err(_) => return,
            }
        }
        self.len += bytes.len();
        let _ = self.file.write_all(bytes);
    }
}

/// The writer of a machine's logs.
pub struct LogWriter {
    console: (UnixStream, Log),
    qemu: (UnixStream, Log),
    /// Locked as long as there may be more to write.
    _directory: File,
}

impl LogWriter {
    /// The writer of output from these sockets: of the console, and of QEMU, which has this log.
    pub fn new(directory: &Path, log: &Path, output: UnixStream, errors: UnixStream) -> Result<LogWriter> {
        let failed = || format!("could not make the logs in {}", directory.display());
        let lock = File::open(directory).explain(failed)?;
        // The writer of an earlier machine of this name may not be done.
        flock(&lock, FlockOperation::LockExclusive).explain(failed)?;
        // An earlier machine's output is not this one's.
        for log in [&console(directory), log] {
            let _ = fs::remove_file(rotated(log));
        }
        Ok(LogWriter {
            console: (output, Log::new(console(directory)).explain(failed)?),
            qemu: (errors, Log::new(log.into()).explain(failed)?),
            _directory: lock,
        })
    }

    /// Writes output from these sockets from now on, of the next process.
    pub fn follow(&mut self, output: UnixStream, errors: UnixStream) {
        (self.console.0, self.qemu.0) = (output, errors);
    }

    /// Writes until both sockets are closed, and serves the requests of `modes` meanwhile. If the lifeline
    /// closes without a byte, its holder has died, and `lost` is called. Returns whether the lifeline is
    /// still to be watched.
    pub fn run<L: Read + AsRawFd>(
        &mut self,
        lifeline: Option<&mut L>,
        modes: Option<&Modes>,
        lost: &dyn Fn(),
    ) -> bool {
        let (number, mut lifeline) = (lifeline.as_ref().map_or(-1, |it| it.as_raw_fd()), lifeline);
        let mut open = [true, true, lifeline.is_some(), modes.is_some()];
        while open[0] || open[1] {
            let watched =
                |fd, open| libc::pollfd { fd: if open { fd } else { -1 }, events: libc::POLLIN, revents: 0 };
            let mut entries = [
                watched(self.console.0.as_raw_fd(), open[0]),
                watched(self.qemu.0.as_raw_fd(), open[1]),
                watched(number, open[2]),
                watched(modes.map_or(-1, AsRawFd::as_raw_fd), open[3]),
            ];
            // SAFETY: the list has as many entries as poll is told.
            unsafe { libc::poll(entries.as_mut_ptr(), entries.len() as libc::nfds_t, -1) };
            if entries[0].revents != 0 {
                open[0] = copy_some(&mut self.console.0, &mut self.console.1);
            }
            if entries[1].revents != 0 {
                open[1] = copy_some(&mut self.qemu.0, &mut self.qemu.1);
            }
            if entries[3].revents != 0 {
                open[3] = entries[3].revents & libc::POLLIN != 0 && modes.is_some_and(Modes::serve);
            }
            if entries[2].revents != 0 {
                open[2] = false;
                if !matches!(lifeline.as_mut().map(|it| it.read(&mut [0])), Some(Ok(1))) {
                    lost();
                }
            }
        }
        open[2]
    }
}

/// False at the end of input.
fn copy_some(from: &mut impl Read, to: &mut Log) -> bool {
    let mut bytes = [0; 16 << 10];
    match from.read(&mut bytes) {
        Ok(0) => false,
        Ok(len) => {
            to.put(&bytes[..len]);
            true
        }
        Err(e) => e.kind() == io::ErrorKind::Interrupted,
    }
}

/// The last lines of a machine's logs, for an error message. If its QEMU has ended, waits until all output is
/// written.
pub fn last_output(directory: &Path, ended: bool) -> String {
    wait_until_written(
        directory,
        match ended {
            true => DRAIN_TIMEOUT,
            false => WRITE_TIMEOUT,
        },
    );
    tail(&qemu(directory)) + &tail(&console(directory))
}

fn wait_until_written(directory: &Path, timeout: Duration) {
    let Ok(lock) = File::open(directory) else {
        return;
    };
    let locked = || flock(&lock, FlockOperation::NonBlockingLockShared).is_ok();
    interrupt::repeat(timeout, Duration::from_millis(5), || locked().then_some(()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_do_not_grow_for_ever() {
        let directory = std::env::temp_dir().join(format!("vshmem-logs-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let (theirs, ours) = UnixStream::pair().unwrap();
        let (mut their_errors, errors) = UnixStream::pair().unwrap();
        let mut writer = LogWriter::new(&directory, &qemu(&directory), ours, errors).unwrap();
        let flood = std::thread::spawn(move || {
            let line = [b'x'; 1000];
            for _ in 0..3 * MAX_SIZE / line.len() {
                (&theirs).write_all(&line).unwrap();
            }
            (&theirs).write_all(b"\nlast \x1b[31mwords\n").unwrap();
            their_errors.write_all(b"and QEMU's\n").unwrap();
        });
        // Nobody holds the lifeline.
        let (mut lifeline, end) = UnixStream::pair().unwrap();
        drop(end);
        let lost = std::cell::Cell::new(0);
        assert!(!writer.run(Some(&mut lifeline), None, &|| lost.set(lost.get() + 1)));
        drop(writer);
        flood.join().unwrap();
        assert_eq!(lost.get(), 1);
        let size = |path: &Path| fs::metadata(path).unwrap().len() as usize;
        let log = console(&directory);
        assert!(size(&log) <= MAX_SIZE && size(&rotated(&log)) <= MAX_SIZE);
        let words = last_output(&directory, true);
        assert!(words.starts_with("\n    and QEMU's"), "{words}");
        assert!(words.ends_with("\n    last [31mwords"), "{words}");
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn late_output_is_waited_for() {
        let directory = std::env::temp_dir().join(format!("vshmem-late-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let (_, output) = UnixStream::pair().unwrap();
        let (mut their_errors, errors) = UnixStream::pair().unwrap();
        let mut writer = LogWriter::new(&directory, &qemu(&directory), output, errors).unwrap();
        their_errors.write_all(b"no memory\n").unwrap();
        drop(their_errors);
        let busy = std::thread::spawn(move || {
            std::thread::sleep(WRITE_TIMEOUT + Duration::from_millis(200));
            writer.run(Some(&mut File::open("/dev/null").unwrap()), None, &|| ());
        });
        assert_eq!(last_output(&directory, true), "\n    no memory");
        busy.join().unwrap();
        fs::remove_dir_all(&directory).unwrap();
    }
}
