//! The keeper: it supervises the back end, and stores descriptors for it. When the back end dies, the keeper
//! starts another, which fetches them. The keeper does not know what they are.

use crate::ivshmem::fd_store::{Connection, END, ENTRY, FETCH, REMOVE, STOP, STORE};
use crate::ivshmem::program::{Part, Program};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Time that a back end must live to be restarted without a pause.
const HEALTHY: Duration = Duration::from_secs(5);
/// The first pause; each is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Serves the back end at the other end of the connection, and its successors, until one is asked to end.
pub fn run(program: &Program, mut back_end: Connection) -> io::Result<()> {
    let mut store = BTreeMap::new();
    let mut pause = Duration::ZERO;
    loop {
        let begun = Instant::now();
        let was_running = match serve(&back_end, &mut store) {
            Exit::Stopped => return Ok(()),
            Exit::Died { was_running } => was_running,
        };
        pause = if begun.elapsed() > HEALTHY {
            Duration::ZERO
        } else {
            (pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE)
        };
        if was_running {
            eprintln!("vshmem agent: the agent has died; another one is started");
        }
        sleep(pause);
        let (ours, theirs) = Connection::pair()?;
        // After a failure, the next round finds the other end closed, and tries again.
        if let Err(error) = program.start(Part::BackEnd, &theirs) {
            eprintln!("vshmem agent: the agent could not be started: {error}");
        }
        drop(theirs);
        back_end = ours;
    }
}

/// The end of a back end.
enum Exit {
    Stopped,
    Died {
        /// There was a back end at all.
        was_running: bool,
    },
}

fn serve(back_end: &Connection, store: &mut BTreeMap<String, Vec<OwnedFd>>) -> Exit {
    let mut was_running = false;
    while let Ok(Some((letter, label, fds))) = back_end.receive() {
        match letter {
            STORE => drop(store.insert(label, fds)),
            REMOVE => store.retain(|name, _| !name.starts_with(&label)),
            FETCH => {
                was_running = true;
                if send_all(back_end, store).is_err() {
                    break;
                }
            }
            STOP => return Exit::Stopped,
            _ => (),
        }
    }
    Exit::Died { was_running }
}

fn send_all(back_end: &Connection, store: &BTreeMap<String, Vec<OwnedFd>>) -> io::Result<()> {
    for (label, fds) in store {
        let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        back_end.send(ENTRY, label, &fds)?;
    }
    back_end.send(END, &std::process::id().to_string(), &[])
}
