//! A client of the control socket, and starting a back end.

use crate::ivshmem::control::{Request, Response, Status};
use crate::ivshmem::directory::Directory;
use crate::ivshmem::fd_store::{Connection, STORE};
use crate::ivshmem::program::{Part, Program};
use crate::ivshmem::stored::LOCK;
use rustix::process::{pidfd_open, pidfd_send_signal, Pid, PidfdFlags, Signal};
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};
use vshmem_base::error::{error, Error, Explain, Result};

/// Time that a response may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Time that a response may take before the back end counts as hung.
const HUNG_TIMEOUT: Duration = Duration::from_secs(2);

/// Requests the back end's status; `None` if there is no back end.
///
/// # Errors
/// It does not respond, or not with a status.
pub fn status(directory: &Directory) -> Result<Option<Status>> {
    let Some(line) = ask(directory, &Request::List {}, TIMEOUT)? else {
        return Ok(None);
    };
    serde_json::from_str(&line)
        .map(Some)
        .map_err(|e| error!("the agent's response can't be parsed ({e}): {line}"))
}

/// Sends the back end any other request; returns the address that the response has.
///
/// # Errors
/// There is no back end, or the request fails.
pub fn request(directory: &Directory, request: &Request) -> Result<Option<PathBuf>> {
    let line = ask(directory, request, TIMEOUT)?.ok_or_else(|| no_back_end(directory))?;
    let response: Response = serde_json::from_str(&line)
        .map_err(|e| error!("the agent's response can't be parsed ({e}): {line}"))?;
    match response.error {
        Some(error) => Err(Error::new(error)),
        None => Ok(response.socket.map(PathBuf::from)),
    }
}

/// Starts a back end in the background unless there is one, and waits until it responds. Returns whether it
/// was started.
///
/// # Errors
/// It can't be started, or does not respond.
pub fn ensure(program: &Program) -> Result<bool> {
    let directory = &program.directory;
    if status(directory)?.is_some() {
        return Ok(false);
    }
    Directory::at(directory.path())?;
    let (ours, theirs) = Connection::pair().explain(|| "could not make a pair of sockets".into())?;
    // The keeper starts the back end as soon as it finds the other end of its connection closed.
    let started = match directory.try_lock()? {
        Some(lock) => {
            let fds = [std::os::fd::AsFd::as_fd(&lock)];
            ours.send(STORE, LOCK, &fds)
                .and_then(|()| program.start(Part::Keeper, &theirs))
                .explain(|| format!("could not start {}", program.path.display()))?;
            true
        }
        None => false,
    };
    drop((ours, theirs));
    match wait_until(|| Ok(status(directory)?.is_some()))? {
        true => Ok(started),
        false => Err(error!("vshmem agent does not answer; see {}", directory.log().display())),
    }
}

/// Removes the leftovers of a command that was killed before it had started a back end. Does nothing while
/// there is a back end or its keeper.
pub fn remove_left(directory: &Directory) {
    if let Ok(Some(_lock)) = directory.try_lock() {
        directory.remove();
    }
}

/// Waits until a condition holds; false if that takes too long.
fn wait_until(mut is_so: impl FnMut() -> Result<bool>) -> Result<bool> {
    let deadline = Instant::now() + TIMEOUT;
    while Instant::now() < deadline {
        if is_so()? {
            return Ok(true);
        }
        sleep(Duration::from_millis(10));
    }
    Ok(false)
}

/// Restarts the back end without some pools. It does not open any of them, so this works although their
/// contents may be damaged. A back end that does not respond is killed, and the next one starts without them.
///
/// # Errors
/// There is no back end, or it does not respond even then.
pub fn restart_without(directory: &Directory, pools: &[String]) -> Result<()> {
    let list = directory.excluded();
    if !directory.lock().exists() {
        return Err(no_back_end(directory));
    }
    if let Some(bad) = pools.iter().find(|pool| pool.contains(['/', '\n'])) {
        return Err(error!("{bad:?} is no name of a pool that is served: see vshmem agent --status"));
    }
    let lines: String = pools.iter().map(|pool| format!("{pool}\n")).collect();
    fs::write(&list, lines).explain(|| format!("could not write {}", list.display()))?;
    let response = ask(directory, &Request::Restart {}, HUNG_TIMEOUT);
    if !matches!(response, Ok(Some(_))) {
        kill_back_end(directory)?;
    }
    // It removes the list when it has read it, before it serves requests.
    let status = || ask(directory, &Request::List {}, HUNG_TIMEOUT);
    if wait_until(|| Ok(!list.exists() && matches!(status(), Ok(Some(_)))))? {
        return Ok(());
    }
    let _ = fs::remove_file(&list);
    Err(error!("vshmem agent did not start; see {}", directory.log().display()))
}

/// Kills the back end. The keeper starts another.
fn kill_back_end(directory: &Directory) -> Result<()> {
    let written = fs::read_to_string(directory.pid_file()).unwrap_or_default();
    let pid = written.trim().parse().ok().and_then(Pid::from_raw);
    let failed = || "vshmem agent does not answer, and could not be killed".to_string();
    let pid = pid.ok_or_else(|| Error::new(failed()))?;
    let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else {
        // It is dead already.
        return Ok(());
    };
    // The pid may have been used again before the pidfd was opened, but not since.
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
    let has = |word: &[u8]| words.contains(&word);
    if !has(Part::BackEnd.name().as_bytes()) || !has(directory.path().as_os_str().as_bytes()) {
        return Ok(());
    }
    pidfd_send_signal(process, Signal::KILL).explain(failed)
}

fn no_back_end(directory: &Directory) -> Error {
    error!("no agent serves pools in {}; start one with vshmem agent", directory.path().display())
}

/// Sends a request, and waits so long for the response; `None` if there is no back end.
fn ask(directory: &Directory, request: &Request, timeout: Duration) -> Result<Option<String>> {
    let path = directory.control();
    let mut stream = match UnixStream::connect(&path) {
        Ok(stream) => stream,
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => return Ok(None),
        Err(e) => return Err(e).explain(|| format!("could not reach {}", path.display())),
    };
    let mut text = serde_json::to_string(request).expect("a request is plain data");
    text.push('\n');
    let mut answer = String::new();
    stream
        .set_read_timeout(Some(timeout))
        .and_then(|()| stream.write_all(text.as_bytes()))
        .and_then(|()| BufReader::new(&stream).read_line(&mut answer))
        .explain(|| format!("no answer from {}", path.display()))?;
    Ok(Some(answer))
}
