//! The monitors of machines, as the doctor asks them, and the processes that are machines by their records.

use serde_json::Value;
use std::time::Duration;
use vshmem_base::error;
use vshmem_cluster::host::cluster::list;
use vshmem_doctor::Socket;
use vshmem_hypervisor::running::qmp::Qmp;

/// Time that a question and its answer may take. A monitor has one client at a time, which may stay: it is
/// not waited for.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// Asks the monitor that listens at a socket, if it is that of the process which has it.
pub fn ask(socket: &Socket, command: &str, arguments: Value) -> Result<Value, String> {
    // SAFETY: it has no arguments and can't fail.
    let own = unsafe { libc::getuid() };
    let admit = |pid: i32, user: u32| {
        let starts_it = user == 0 || user == own;
        match u32::try_from(pid).is_ok_and(|pid| pid == socket.process) || socket.is_passed && starts_it {
            true => Ok(()),
            false => {
                Err(error!("process {pid} listens at {}, and not the machine's own", socket.path.display()))
            }
        }
    };
    let answer = || Qmp::dialogue(&socket.path, ANSWER_TIMEOUT, admit)?.call(command, arguments);
    answer().map_err(|error| error.to_string())
}

/// The machines that run of the clusters that are recorded for this user. Those of root's have users of their
/// own.
pub fn recorded() -> Vec<u32> {
    let clusters = list().unwrap_or_default();
    let machines = clusters.iter().flat_map(|listed| &listed.record.machines);
    let processes = machines.filter_map(|machine| machine.runs.as_ref()?.process());
    processes.filter(|it| it.alive()).filter_map(|it| u32::try_from(it.pid).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;
    use std::path::Path;
    use std::time::Instant;

    /// The answer to a question by a socket of this process.
    fn asked(path: &Path, process: u32, is_passed: bool) -> Result<Value, String> {
        ask(&Socket { path: path.into(), process, is_passed }, "query-cpus-fast", json!({}))
    }

    #[test]
    fn only_the_process_itself_is_asked_and_not_for_long() {
        let path = std::env::temp_dir().join(format!("vshmem-doctor-monitor-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        // Somebody else's process, whose monitor this one would like to be.
        let why = asked(&path, 1, false).unwrap_err();
        assert!(why.contains(&format!("process {} listens at", std::process::id())), "{why}");
        let mut heard = Vec::new();
        listener.accept().unwrap().0.read_to_end(&mut heard).unwrap();
        assert!(heard.is_empty());
        // One that sends events for ever; the socket may be passed by who asks.
        let talker = std::thread::spawn(move || {
            for client in listener.incoming().take(2) {
                let mut client = client.unwrap();
                let greeting: &[u8] = b"{\"QMP\": {}}\n{\"return\": {}}\n";
                let mut open = client.write_all(greeting).is_ok();
                while open {
                    std::thread::sleep(Duration::from_millis(10));
                    open = client.write_all(b"{\"event\": \"RESUME\"}\n").is_ok();
                }
            }
        });
        for (process, is_passed) in [(std::process::id(), false), (1, true)] {
            let begun = Instant::now();
            let why = asked(&path, process, is_passed).unwrap_err();
            assert!(why.contains("does not answer"), "{why}");
            assert!(begun.elapsed() < 5 * ANSWER_TIMEOUT, "{:?}", begun.elapsed());
        }
        talker.join().unwrap();
        std::fs::remove_file(&path).unwrap();
    }
}
