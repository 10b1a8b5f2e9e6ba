//! Transfers of files by the program curl, which knows the system's proxies and certificates.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use vshmem_base::error::{error, Explain, Result};
use vshmem_base::interrupt;

const PROGRAM: &str = "curl";
/// The largest list of checksums, in bytes: the distributions' have some ten thousand.
const MAX_LIST: u64 = 4 << 20;
/// Seconds without a byte after which a transfer has failed.
const SILENCE: &str = "60";
/// curl's exit code for a server that can't send a part of a file.
const NO_RANGES: i32 = 33;
/// HTTP's status if there is nothing behind what has come, which may be all.
const NOTHING_BEHIND: &str = "416";
/// The interval at which progress is told.
const INTERVAL: Duration = Duration::from_millis(100);

/// What became of a transfer.
pub enum Transfer {
    /// All has come.
    Done,
    /// The server does not send the rest of what has come.
    NoRest,
    /// It failed, for this reason.
    Failed(String),
}

/// The text of a small file.
///
/// # Errors
/// If it can't be had, in curl's words, or is no list.
pub fn text(url: &str) -> Result<String> {
    let mut command = command(url);
    command.args(["--max-filesize", &MAX_LIST.to_string()]);
    let mut child = spawn(&mut command)?;
    // Whatever the server says, no more than that is read.
    let mut list = String::new();
    let read = child.stdout.take().map(|pipe| pipe.take(MAX_LIST).read_to_string(&mut list));
    let failed = wait(&mut child, &mut || ())?;
    match (failed, read) {
        (Some((_, why)), _) => Err(error!("{why}")),
        (None, Some(Ok(_))) => Ok(list),
        (None, _) => Err(error!("{url} is no list of checksums")),
    }
}

/// Appends to a file what comes from behind its end. `tell` is told how many bytes there are, and how many
/// there will be, if that is known.
///
/// # Errors
/// If curl can't be started, or the user asks to stop.
pub fn append(url: &str, path: &Path, tell: &mut dyn FnMut(u64, Option<u64>)) -> Result<Transfer> {
    let length = || fs::metadata(path).map_or(0, |meta| meta.len());
    let begun = length();
    let mut command = command(url);
    command.args(["--dump-header", "-", "--output"]).arg(path);
    if begun > 0 {
        command.args(["--continue-at", &begun.to_string()]);
    }
    let mut child = spawn(&mut command)?;
    let total = Arc::new(AtomicU64::new(0));
    let headers = child.stdout.take().map(|pipe| read_headers(pipe, begun, total.clone()));
    let failed = wait(&mut child, &mut || {
        let total = total.load(Ordering::Relaxed);
        tell(length(), (total > 0).then_some(total));
    })?;
    let status = headers.and_then(|reader| reader.join().ok()).unwrap_or_default();
    Ok(match failed {
        None => Transfer::Done,
        Some((NO_RANGES, _)) => Transfer::NoRest,
        Some(_) if begun > 0 && status == NOTHING_BEHIND => Transfer::NoRest,
        Some((_, why)) => Transfer::Failed(why),
    })
}

/// Whether it can be started, before anything else is done.
pub fn check() -> Result<()> {
    let found = Command::new(PROGRAM).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    found.map(drop).map_err(|why| {
        error!("{PROGRAM}, which downloads images, could not be started: {why}").hint(
            "Install it, for instance: sudo apt-get install curl. Or download the image by other means, and name the \
             file instead.",
        )
    })
}

fn command(url: &str) -> Command {
    // What begins safely is not led elsewhere.
    let protocols = if url.starts_with("https:") { "=https" } else { "=http,https" };
    let mut command = Command::new(PROGRAM);
    command.args(["--silent", "--show-error", "--fail", "--location", "--proto", protocols]);
    command.args(["--connect-timeout", "30", "--speed-limit", "1", "--speed-time", SILENCE, "--url", url]);
    command
}

fn spawn(command: &mut Command) -> Result<Child> {
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().explain(|| format!("could not start {PROGRAM}"))
}

/// Reads the answers' headers, of which the last is for the file itself: sets the length that it will have,
/// and returns the status.
fn read_headers(pipe: ChildStdout, begun: u64, total: Arc<AtomicU64>) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let mut status = String::new();
        for line in BufReader::new(pipe).lines().map_while(|line| line.ok()) {
            if line.starts_with("HTTP/") {
                status = line.split_whitespace().nth(1).unwrap_or_default().into();
            }
            let length = line.split_once(':').filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
            let length = length.and_then(|(_, bytes)| bytes.trim().parse::<u64>().ok());
            if let Some(length) = length.filter(|_| status.starts_with('2')) {
                total.store(begun.saturating_add(length), Ordering::Relaxed);
            }
        }
        status
    })
}

/// Waits for curl's end: `None`, or its exit code and what it said. It is ended if the user asks to stop.
fn wait(child: &mut Child, tick: &mut dyn FnMut()) -> Result<Option<(i32, String)>> {
    let status = loop {
        if let Some(status) = child.try_wait().explain(|| format!("could not wait for {PROGRAM}"))? {
            break status;
        }
        if let Err(stopped) = interrupt::check() {
            let _ = child.kill();
            let _ = child.wait();
            return Err(stopped);
        }
        tick();
        std::thread::sleep(INTERVAL);
    };
    // It may have been asked itself, by ctrl-C.
    interrupt::check()?;
    if status.success() {
        return Ok(None);
    }
    let mut said = String::new();
    let _ = child.stderr.take().map(|pipe| pipe.take(4096).read_to_string(&mut said));
    let said = said.lines().last().unwrap_or_default().trim();
    // curl: (6) Could not resolve host: x
    let why = said.split_once(") ").map_or(said, |(_, why)| why);
    let why = if why.is_empty() { format!("{PROGRAM} ended with {status}") } else { why.into() };
    Ok(Some((status.code().unwrap_or(-1), why)))
}
