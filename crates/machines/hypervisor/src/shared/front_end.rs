//! The host's end of the channel to a machine's front end: it sends the list of the machine's pools, and
//! receives which of them can be used. `docs/protocol.md` specifies it.

use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use vshmem_agent::guest::protocol::{
    DriverStatus, Empty, GrantResponse, GrantedPool, GuestRequest, GuestStatus,
};
use vshmem_agent::guest::Lines;
use vshmem_base::error::{error, Error, Explain, Result};
use vshmem_base::lock::lock_file;
use vshmem_base::{interrupt, printable};

/// Time for which another command may use the same channel.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// Time to the first repetition of a request; it doubles each time. An answer is lost if the machine's kernel
/// reports the hang-up of the host before it after this request was read.
const REPEAT_AFTER: Duration = Duration::from_millis(300);
/// A socket's timeout can't be zero.
const MIN_TIMEOUT: Duration = Duration::from_millis(1);

/// Sends the whole list of the machine's pools. Those that are missing were revoked.
pub fn set_pools(socket: &Path, pools: Vec<GrantedPool>, timeout: Duration) -> Result<GrantResponse> {
    let message = GuestRequest { pools: Some(pools), ..GuestRequest::default() };
    let mut answer: GrantResponse = request(socket, message, timeout)?;
    for failed in &mut answer.failed {
        failed.why = printable(&failed.why);
    }
    Ok(answer)
}

/// Asks for the front end's status.
pub fn status(socket: &Path, timeout: Duration) -> Result<GuestStatus> {
    let message = GuestRequest { status: Some(Empty::default()), ..GuestRequest::default() };
    request(socket, message, timeout)
}

/// The reason why a machine's driver could not be loaded; `None` if it was loaded, or not tried.
pub fn driver_error(status: &GuestStatus) -> Option<String> {
    match &status.driver {
        DriverStatus::Loaded(_) => None,
        DriverStatus::Failed(why) => Some(printable(why)),
    }
}

/// Sends a request and waits for its answer. Other lines are skipped.
fn request<T: DeserializeOwned>(socket: &Path, mut message: GuestRequest, timeout: Duration) -> Result<T> {
    let deadline = Instant::now() + timeout;
    let _lock = lock(socket)?;
    let reach = || format!("could not reach vshmem agent --guest in the machine at {}", socket.display());
    let mut stream = UnixStream::connect(socket).explain(reach)?;
    message.id = request_id();
    let text = serde_json::to_string(&message).expect("a request is plain data");
    // The host before may have left half a line.
    let line = format!("\n{text}\n");
    stream.set_write_timeout(Some(timeout.max(MIN_TIMEOUT))).explain(reach)?;
    let mut lines = Lines::default();
    let (mut again, mut pause) = (Instant::now(), REPEAT_AFTER);
    loop {
        let now = Instant::now();
        if now >= again {
            stream.write_all(line.as_bytes()).explain(reach)?;
            again = now + pause;
            pause *= 2;
        }
        let left = deadline.min(again).saturating_duration_since(now);
        if now >= deadline {
            return Err(Error::new("vshmem agent --guest in the machine does not answer"));
        }
        stream.set_read_timeout(Some(left.max(MIN_TIMEOUT))).explain(reach)?;
        let mut bytes = [0; 4096];
        match stream.read(&mut bytes) {
            Ok(0) => return Err(Error::new("the machine has gone away").hint("See vshmem ps.")),
            Ok(len) => lines.push(&bytes[..len]),
            Err(e) if e.kind() == ErrorKind::Interrupted => (),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => (),
            Err(e) => return Err(e).explain(reach),
        }
        while let Some(line) = lines.next() {
            if let Some(answer) = parse_answer(&line, message.id) {
                return answer;
            }
        }
    }
}

/// The answer in a line, if it is the one to this request.
pub fn parse_answer<T: DeserializeOwned>(line: &[u8], id: u64) -> Option<Result<T>> {
    let answer: Value = serde_json::from_slice(line).ok()?;
    if answer.get("id")?.as_u64() != Some(id) {
        return None;
    }
    if let Some(why) = answer.get("error").and_then(Value::as_str) {
        let text = format!("vshmem agent --guest in the machine refuses: {}", printable(why));
        return Some(Err(Error::new(text)));
    }
    Some(serde_json::from_value(answer).map_err(|e| {
        error!("vshmem agent --guest in the machine sent an answer that can't be understood: {e}")
            .hint("Is it of another version?")
    }))
}

/// The hypervisor serves one connection at a time; others would wait without an explanation.
fn lock(socket: &Path) -> Result<File> {
    let path = socket.with_extension("lock");
    let locked = interrupt::poll(LOCK_TIMEOUT, Duration::from_millis(2), || lock_file(&path, false))?;
    locked.ok_or_else(|| {
        Error::new("another command has talked with vshmem agent --guest in the machine for too long")
    })
}

/// A request id that is unlikely to be used by another one.
fn request_id() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let nanoseconds = now.unwrap_or_default().as_nanos() as u64;
    // As many bits as every JSON library preserves.
    (nanoseconds ^ (u64::from(std::process::id()) << 32)) & ((1 << 53) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::os::unix::net::UnixListener;
    use std::path::PathBuf;

    /// A front end that answers the first request with these lines; `ID` in them stands for the request's id.
    fn served(name: &str, answer: &'static str) -> (PathBuf, std::thread::JoinHandle<String>) {
        let directory = std::env::temp_dir().join(format!("vshmem-fe-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("agent.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let thread = std::thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut line = String::new();
            while line.trim().is_empty() {
                line.clear();
                reader.read_line(&mut line).unwrap();
            }
            let request: Value = serde_json::from_str(&line).unwrap();
            let id = request["id"].to_string();
            let _ = stream.write_all(answer.replace("ID", &id).as_bytes());
            // Until the host has disconnected.
            let _ = reader.read_line(&mut String::new());
            line
        });
        (path, thread)
    }

    fn finish(path: &Path, thread: std::thread::JoinHandle<String>) -> String {
        let asked = thread.join().unwrap();
        std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
        asked
    }

    #[test]
    fn the_answer_is_found_among_others() {
        let said = "half a line\n{\"id\":1,\"ready\":[\"no\"]}\n\n[7]\n\
            {\"id\":ID,\"ready\":[\"work\"],\"failed\":[{\"name\":\"b\",\"why\":\"so\\u001b\"}]}\n";
        let (path, thread) = served("tell", said);
        let entry = GrantedPool { address: "0000:05:00.0".into(), name: "work".into() };
        let heard = set_pools(&path, vec![entry], Duration::from_secs(20)).unwrap();
        assert_eq!(heard.ready, ["work"]);
        assert_eq!((heard.failed[0].name.as_str(), heard.failed[0].why.as_str()), ("b", "so"));
        let asked = finish(&path, thread);
        assert!(asked.contains(r#""pools":[{"address":"0000:05:00.0","name":"work"}]"#), "{asked}");
    }

    #[test]
    fn a_status_says_why_there_is_no_driver() {
        let said = "{\"id\":ID,\"version\":\"1\",\"kernel\":\"6.1\",\"driver\":\"it is another kernel's\",\
            \"pools\":[{\"name\":\"work\",\"address\":\"x\",\"member\":3,\"state\":\"ready\"}]}\n";
        let (path, thread) = served("status", said);
        let heard = status(&path, Duration::from_secs(20)).unwrap();
        assert_eq!(driver_error(&heard).unwrap(), "it is another kernel's");
        assert_eq!(heard.pools[0].member, Some(3));
        finish(&path, thread);
    }

    #[test]
    fn a_refusal_is_an_error() {
        let (path, thread) = served("refusal", "{\"id\":ID,\"error\":\"no\\u0007 pools\"}\n");
        let error = status(&path, Duration::from_secs(20)).unwrap_err();
        assert!(error.to_string().ends_with("refuses: no pools"), "{error}");
        finish(&path, thread);
    }

    #[test]
    fn a_front_end_that_does_not_answer_times_out() {
        let (path, thread) = served("silent", "{\"id\":2}\n");
        let error = status(&path, Duration::from_millis(50)).unwrap_err();
        assert!(error.to_string().contains("does not answer"), "{error}");
        finish(&path, thread);
    }

    #[test]
    fn a_request_is_repeated() {
        let directory = std::env::temp_dir().join(format!("vshmem-fe-again-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("agent.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let thread = std::thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            let reader = BufReader::new(stream.try_clone().unwrap());
            let lines = reader.lines().map(|line| line.unwrap());
            let second = lines.filter(|line| !line.is_empty()).nth(1).unwrap();
            let request: Value = serde_json::from_str(&second).unwrap();
            let answer = format!("{{\"id\":{},\"ready\":[],\"failed\":[]}}\n", request["id"]);
            stream.write_all(answer.as_bytes()).unwrap();
        });
        assert!(set_pools(&path, vec![], Duration::from_secs(30)).is_ok());
        thread.join().unwrap();
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
