//! Talking to a back end, and starting one.

use crate::control::{Answer, Request, Status};
use crate::directory::Directory;
use crate::error::{Error, Explain, Result};
use crate::link::Link;
use crate::program::{Part, Program};
use crate::server;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Asks the back end how everything is; `None` if there is no back end.
///
/// # Errors
/// It does not answer, or not in the way that it should.
pub fn status(directory: &Directory) -> Result<Option<Status>> {
    let Some(line) = ask(directory, &Request::List {})? else {
        return Ok(None);
    };
    serde_json::from_str(&line).map(Some).map_err(|e| {
        Error::new(format!(
            "the back end's answer makes no sense ({e}): {line}"
        ))
    })
}

/// Asks the back end for something else; the answer is the path of a socket where that makes sense.
///
/// # Errors
/// There is no back end, or it says that it can't be done.
pub fn request(directory: &Directory, request: &Request) -> Result<Option<PathBuf>> {
    let none = || {
        Error::new(format!(
            "there is no back end in {}; start one with vshmem agent",
            directory.path().display()
        ))
    };
    let line = ask(directory, request)?.ok_or_else(none)?;
    let answer: Answer = serde_json::from_str(&line).map_err(|e| {
        Error::new(format!(
            "the back end's answer makes no sense ({e}): {line}"
        ))
    })?;
    match answer.error {
        Some(error) => Err(Error::new(error)),
        None => Ok(answer.socket.map(PathBuf::from)),
    }
}

/// Starts a back end in the background unless there is one, and waits until it answers. Returns whether it was started now.
///
/// # Errors
/// It can't be started, or does not answer.
pub fn ensure(program: &Program) -> Result<bool> {
    let directory = &program.directory;
    if status(directory)?.is_some() {
        return Ok(false);
    }
    Directory::at(directory.path())?;
    let (ours, theirs) = Link::pair().explain(|| "could not make a pair of sockets".into())?;
    // The keeper starts the back end as soon as it finds the other end of its link closed.
    let started = match server::lock(directory)? {
        Some(lock) => {
            let fds = [std::os::fd::AsFd::as_fd(&lock)];
            ours.send(crate::link::STORE, server::LOCK, &fds)
                .and_then(|()| program.start(Part::Keeper, &theirs))
                .explain(|| format!("could not start {}", program.path.display()))?;
            true
        }
        None => false,
    };
    drop((ours, theirs));
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if status(directory)?.is_some() {
            return Ok(started);
        }
        sleep(Duration::from_millis(10));
    }
    Err(Error::new(format!(
        "the back end does not answer; see {}",
        directory.log().display()
    )))
}

/// One request, one answer; `None` if nobody listens.
fn ask(directory: &Directory, request: &Request) -> Result<Option<String>> {
    let path = directory.control();
    let mut stream = match UnixStream::connect(&path) {
        Ok(stream) => stream,
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
            return Ok(None)
        }
        Err(e) => return Err(e).explain(|| format!("could not reach {}", path.display())),
    };
    let mut text = serde_json::to_string(request).expect("a request is plain data");
    text.push('\n');
    let mut answer = String::new();
    stream
        .set_read_timeout(Some(PATIENCE))
        .and_then(|()| stream.write_all(text.as_bytes()))
        .and_then(|()| BufReader::new(&stream).read_line(&mut answer))
        .explain(|| format!("no answer from {}", path.display()))?;
    Ok(Some(answer))
}
