//! Threads that write this process's output, so that a reader which does not read holds up neither signals
//! nor time limits.

use super::output::Stream;
use rustix::event::{eventfd, EventfdFlags};
use rustix::fs::fstat;
use rustix::io::{read, retry_on_intr, Errno};
use rustix::stdio::{stderr, stdout};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use vshmem_base::error::{Explain, Result};

/// Bytes that may wait to be written before no more is taken from commands.
const MAX_WAITING: usize = 256 << 10;

/// The writers of standard output and standard error: a thread each, or one for both if they are one file,
/// where the order matters.
#[derive(Clone)]
pub struct Writers {
    /// The writers of standard output and standard error.
    writers: [Arc<Writer>; 2],
    wake: Arc<OwnedFd>,
}

/// A thread, and the bytes that it has yet to write.
struct Writer {
    waiting: Mutex<Waiting>,
    added: Condvar,
    wake: Arc<OwnedFd>,
}

#[derive(Default)]
struct Waiting {
    pieces: VecDeque<(Stream, Vec<u8>)>,
    /// Bytes of the pieces, and of the one that is being written.
    len: usize,
    /// The error after which nothing is written any more.
    error: Option<Errno>,
    /// The event loop waits for a piece to be written.
    awaited: bool,
}

impl Writers {
    /// Writes to standard output and standard error.
    pub fn start() -> Result<Writers> {
        let files = [stdout(), stderr()].map(|fd| fd.try_clone_to_owned().map(File::from));
        let [out, err] = files;
        out.and_then(|out| Writers::to([out, err?])).explain(|| "could not prepare to pass on output".into())
    }

    fn to(files: [File; 2]) -> io::Result<Writers> {
        let [out, err] = [fstat(&files[0])?, fstat(&files[1])?];
        let one = (out.st_dev, out.st_ino) == (err.st_dev, err.st_ino);
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let files = Arc::new(files);
        let writer = || {
            let writer = Writer { waiting: Mutex::default(), added: Condvar::new(), wake: wake.clone() };
            let (writer, files) = (Arc::new(writer), files.clone());
            let thread = writer.clone();
            // It ends with the process, even while it waits for a reader.
            std::thread::Builder::new().spawn(move || thread.run(&files))?;
            io::Result::Ok(writer)
        };
        let first = writer()?;
        let second = if one { first.clone() } else { writer()? };
        Ok(Writers { writers: [first, second], wake })
    }

    /// Streams that write to standard output and standard error.
    pub fn streams(&self) -> [Box<dyn Write>; 2] {
        [Stream::Out, Stream::Err].map(|stream| self.stream(stream))
    }

    /// A stream that writes to one of them. An error may concern earlier bytes.
    pub fn stream(&self, stream: Stream) -> Box<dyn Write> {
        Box::new(Queued { writer: self.writers[stream as usize].clone(), stream })
    }

    /// Whether no more output should come until some is written. The descriptor says when to ask again.
    pub fn full(&self) -> bool {
        self.writers.iter().any(|writer| writer.await_more_than(MAX_WAITING))
    }

    /// Whether output waits to be written. The descriptor says when to ask again.
    pub fn busy(&self) -> bool {
        self.writers.iter().any(|writer| writer.await_more_than(0))
    }

    /// An error if something could not be written.
    pub fn check(&self) -> io::Result<()> {
        // The counter only wakes the event loop; the state is read below.
        let _ = read(&self.wake, &mut [0u8; 8]);
        self.writers.iter().try_for_each(|writer| writer.lock().error.map_or(Ok(()), |why| Err(why.into())))
    }
}

/// The descriptor is readable when a piece was written, or writing has failed.
impl AsFd for Writers {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

impl Writer {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn await_more_than(&self, len: usize) -> bool {
        let mut waiting = self.lock();
        let more = waiting.error.is_none() && waiting.len > len;
        waiting.awaited |= more;
        more
    }

    fn run(&self, files: &[File; 2]) {
        loop {
            let mut waiting = self.lock();
            let (stream, bytes) = loop {
                match waiting.pieces.pop_front() {
                    Some(piece) => break piece,
                    None => waiting = self.added.wait(waiting).unwrap_or_else(PoisonError::into_inner),
                }
            };
            drop(waiting);
            let written = write_all(&files[stream as usize], &bytes);
            let mut waiting = self.lock();
            waiting.len -= bytes.len();
            waiting.error = written.err();
            if std::mem::take(&mut waiting.awaited) || waiting.error.is_some() {
                // Only a counter that is full, and so readable, refuses.
                let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
            }
            if waiting.error.is_some() {
                return;
            }
        }
    }
}

fn write_all(file: &File, mut bytes: &[u8]) -> std::result::Result<(), Errno> {
    while !bytes.is_empty() {
        let len = retry_on_intr(|| rustix::io::write(file, bytes))?;
        bytes = &bytes[len..];
    }
    Ok(())
}

/// A stream whose bytes a thread writes.
struct Queued {
    writer: Arc<Writer>,
    stream: Stream,
}

impl Write for Queued {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut waiting = self.writer.lock();
        if let Some(why) = waiting.error {
            return Err(why.into());
        }
        waiting.len += bytes.len();
        waiting.pieces.push_back((self.stream, bytes.to_vec()));
        self.writer.added.notify_one();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{poll, PollFd, PollFlags};
    use std::io::Read;

    fn pipe() -> (File, File) {
        let (reads, writes) = rustix::pipe::pipe().expect("a pipe");
        (reads.into(), writes.into())
    }

    fn wait(writers: &Writers) {
        poll(&mut [PollFd::new(writers, PollFlags::IN)], None).expect("news");
    }

    #[test]
    fn an_output_that_nobody_reads_holds_up_no_other() {
        let ((mut out, to_out), (mut err, to_err)) = (pipe(), pipe());
        let writers = Writers::to([to_out, to_err]).expect("threads");
        let big = vec![b'x'; 2 * MAX_WAITING];
        writers.stream(Stream::Out).write_all(&big).expect("it is taken");
        writers.stream(Stream::Err).write_all(b"error").expect("it is taken");
        let mut read = [0; 5];
        err.read_exact(&mut read).expect("the other output");
        assert_eq!(&read, b"error");
        assert!(writers.full());
        let mut rest = vec![0; big.len()];
        out.read_exact(&mut rest).expect("all of it");
        assert_eq!(rest, big);
        while writers.busy() {
            wait(&writers);
            writers.check().expect("no error");
        }
    }

    #[test]
    fn both_outputs_keep_their_order_where_they_are_one_file() {
        let (mut all, to_all) = pipe();
        let writers = Writers::to([to_all.try_clone().expect("a copy"), to_all]).expect("threads");
        let expected: String = (0..500).map(|number| format!("{number}\n")).collect();
        for (number, line) in expected.split_inclusive('\n').enumerate() {
            let stream = if number % 2 == 0 { Stream::Out } else { Stream::Err };
            writers.stream(stream).write_all(line.as_bytes()).expect("it is taken");
        }
        let mut read = vec![0; expected.len()];
        all.read_exact(&mut read).expect("all of it");
        assert_eq!(String::from_utf8_lossy(&read), expected);
    }

    #[test]
    fn a_reader_that_has_gone_is_told() {
        let ((out, to_out), (_err, to_err)) = (pipe(), pipe());
        let writers = Writers::to([to_out, to_err]).expect("threads");
        drop(out);
        writers.stream(Stream::Out).write_all(b"text").expect("it is taken");
        wait(&writers);
        assert_eq!(writers.check().map_err(|e| e.kind()), Err(io::ErrorKind::BrokenPipe));
        assert!(writers.stream(Stream::Out).write_all(b"text").is_err());
        assert!(!writers.busy(), "nothing that could still be written");
    }
}
