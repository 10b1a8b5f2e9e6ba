//! Talking to a back end, and starting one.

use crate::error::{Error, Explain, Result};
use crate::ivshmem::control::{Answer, Request, Status};
use crate::ivshmem::directory::Directory;
use crate::ivshmem::link::Link;
use crate::ivshmem::program::{Part, Program};
use crate::ivshmem::server;
use rustix::process::{pidfd_open, pidfd_send_signal, Pid, PidfdFlags, Signal};
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a back end takes for an answer that has nothing else to do.
const SOON: Duration = Duration::from_secs(2);

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
    let line = ask(directory, request)?.ok_or_else(|| none(directory))?;
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
            ours.send(crate::ivshmem::link::STORE, server::LOCK, &fds)
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

/// Has the back end begin anew without some pools: none of them is opened, so whatever lies in them, they are served no longer. A back end
/// that does not answer is killed, and the next one begins so.
///
/// # Errors
/// There is no back end, or none that answers even then.
pub fn begin_without(directory: &Directory, pools: &[String]) -> Result<()> {
    let list = directory.without();
    if !directory.lock().exists() {
        return Err(none(directory));
    }
    if let Some(bad) = pools.iter().find(|pool| pool.contains(['/', '\n'])) {
        return Err(Error::new(format!(
            "{bad:?} is not what a pool is called here: see vshmem agent --status"
        )));
    }
    let lines: String = pools.iter().map(|pool| format!("{pool}\n")).collect();
    fs::write(&list, lines).explain(|| format!("could not write {}", list.display()))?;
    let asked = ask_within(directory, &Request::Restart {}, SOON);
    if !matches!(asked, Ok(Some(_))) {
        kill_back_end(directory)?;
    }
    // It has read the list when it removes it, before it answers anybody.
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        let answers = || matches!(ask_within(directory, &Request::List {}, SOON), Ok(Some(_)));
        if !list.exists() && answers() {
            return Ok(());
        }
        sleep(Duration::from_millis(10));
    }
    let _ = fs::remove_file(&list);
    Err(Error::new(format!(
        "no back end has begun anew; see {}",
        directory.log().display()
    )))
}

/// Kills the back end, which the keeper does not take for its end: it starts another.
fn kill_back_end(directory: &Directory) -> Result<()> {
    let written = fs::read_to_string(directory.process()).unwrap_or_default();
    let pid = written.trim().parse().ok().and_then(Pid::from_raw);
    let failed = || "the back end does not answer, and could not be killed".to_string();
    let pid = pid.ok_or_else(|| Error::new(failed()))?;
    let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else {
        // It is dead already.
        return Ok(());
    };
    // The pid may be another's by now; this one's it stays as long as the descriptor is there and the process answers to it.
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
    let has = |word: &[u8]| words.contains(&word);
    if !has(Part::BackEnd.name().as_bytes()) || !has(directory.path().as_os_str().as_bytes()) {
        return Ok(());
    }
    pidfd_send_signal(process, Signal::KILL).explain(failed)
}

fn none(directory: &Directory) -> Error {
    Error::new(format!(
        "there is no back end in {}; start one with vshmem agent",
        directory.path().display()
    ))
}

/// One request, one answer; `None` if nobody listens.
fn ask(directory: &Directory, request: &Request) -> Result<Option<String>> {
    ask_within(directory, request, PATIENCE)
}

fn ask_within(
    directory: &Directory,
    request: &Request,
    patience: Duration,
) -> Result<Option<String>> {
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
        .set_read_timeout(Some(patience))
        .and_then(|()| stream.write_all(text.as_bytes()))
        .and_then(|()| BufReader::new(&stream).read_line(&mut answer))
        .explain(|| format!("no answer from {}", path.display()))?;
    Ok(Some(answer))
}
