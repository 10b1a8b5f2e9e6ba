//! One back end with its workers: performs steps and says what came of them.

mod lifecycle;

use crate::names;
use crate::peer::{Activity, Peer, Pending};
use crate::script::{Step, OBSERVER, SLOTS};
use crate::setup::{Backend, Setup};
use crate::translate::Translator;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long a worker may take to start, or to come to rest.
const PATIENCE: Duration = Duration::from_secs(20);
/// Timeouts up to this count as "ends by itself": the harness waits for the answer.
const SHORT_TIMEOUT_MS: i64 = 500;

static NEXT: AtomicU64 = AtomicU64::new(0);

/// What came of a step on one side, in comparable words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// What the step itself did.
    pub main: String,
    /// The answers of workers that were blocked before, by worker.
    pub others: BTreeMap<usize, String>,
    /// The workers that are blocked now.
    pub blocked: Vec<usize>,
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "{}", self.main)?;
        self.others.iter().try_for_each(|(worker, text)| write!(f, " ; {worker}: {text}"))
    }
}

/// One back end.
pub struct Side {
    backend: Backend,
    program: PathBuf,
    library: Option<PathBuf>,
    pool: PathBuf,
    namespace: OwnedFd,
    listener: UnixListener,
    socket_name: String,
    peers: Vec<Option<Peer>>,
    /// Processes that may still be there, to be killed and reaped.
    processes: Vec<i32>,
    starts: Vec<usize>,
    variables: BTreeMap<String, i64>,
    pub translator: Translator,
}

impl Side {
    /// Starts a back end in a namespace of its own, with this many workers and the observer.
    ///
    /// # Errors
    /// What could not be done, as a sentence.
    pub fn start(setup: &Setup, backend: Backend, workers: usize) -> Result<Side, String> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // SAFETY: only changes the calling thread's IPC namespace.
        if unsafe { libc::unshare(libc::CLONE_NEWIPC) } != 0 {
            return Err(format!("no IPC namespace can be had: {}", std::io::Error::last_os_error()));
        }
        let namespace =
            File::open("/proc/thread-self/ns/ipc").map_err(|why| format!("no namespace file: {why}"))?;
        let socket_name = format!("vshmem-differential-{}-{number}", std::process::id());
        let address = SocketAddr::from_abstract_name(&socket_name).map_err(|why| why.to_string())?;
        let listener = UnixListener::bind_addr(&address).map_err(|why| format!("cannot listen: {why}"))?;
        let library = match backend {
            Backend::Vshmem => Some(setup.library().ok_or("no library was given")?),
            _ => None,
        };
        let mut side = Side {
            backend,
            program: setup.worker(),
            library,
            pool: setup.pool(number),
            namespace: namespace.into(),
            listener,
            socket_name,
            peers: (0..=SLOTS).map(|_| None).collect(),
            processes: Vec::new(),
            starts: vec![0; SLOTS + 1],
            variables: BTreeMap::new(),
            translator: Translator::new(),
        };
        side.spawn(OBSERVER)?;
        side.open_pool()?;
        for slot in 0..workers {
            side.spawn(slot)?;
        }
        Ok(side)
    }

    /// Whether a step can be performed now. Both sides agree on it as long as they agree at all.
    pub fn can(&self, step: &Step) -> bool {
        let idle = |slot: usize| self.peers[slot].as_ref().is_some_and(|peer| peer.pending.is_none());
        let blocked = |slot: usize| self.peers[slot].as_ref().is_some_and(|peer| peer.pending.is_some());
        match step {
            Step::Call { worker, words, .. } => idle(*worker) && !self.races(words),
            Step::Kill(slot) => self.peers[*slot].is_some(),
            Step::Exit(slot) => idle(*slot),
            Step::Spawn(slot) => self.peers[*slot].is_none(),
            Step::Fork { parent, child } => idle(*parent) && self.peers[*child].is_none(),
            // With a real user that is not the effective one the loader would drop LD_PRELOAD.
            Step::Exec(slot) => idle(*slot) && self.peers[*slot].as_ref().is_some_and(|peer| peer.plain_root),
            Step::Signal(slot) | Step::IgnoredSignal(slot) => blocked(*slot),
            Step::Tick => true,
        }
    }

    /// Whether the kernel itself would leave the outcome to chance: it wakes several senders (or, on
    /// IPC_SET, everyone) of a queue at once and lets them race.
    fn races(&self, words: &[String]) -> bool {
        if !words[0].starts_with("msg") || words.len() < 2 {
            return false;
        }
        let id = self.resolve(&words[1]);
        let waiting = |command: &str| {
            let pending = self.peers.iter().flatten().filter_map(|peer| peer.pending.as_ref());
            pending.filter(|p| p.words[0].starts_with(command) && p.id.as_ref() == Some(&id)).count()
        };
        match words[0].as_str() {
            "msgsnd" => {
                waiting("msgsnd") > 0 && !words.last().is_some_and(|flags| flags.contains("IPC_NOWAIT"))
            }
            "msgctl" => words.get(2).is_some_and(|word| word == "IPC_SET") && waiting("msg") > 1,
            _ => false,
        }
    }

    /// A word with names replaced by numbers, on this side.
    fn resolve(&self, word: &str) -> String {
        if let Some(id) = self.variables.get(word) {
            return id.to_string();
        }
        if is_variable(word) {
            return "-1".to_owned();
        }
        // The parts of a semaphore operation, and its repeat count.
        let part =
            |text: &str| names::number(text).map_or_else(|| text.to_owned(), |number| number.to_string());
        let (operation, times) = word.split_once('*').map_or((word, None), |(one, times)| (one, Some(times)));
        let parts: Vec<String> = operation.split(':').map(part).collect();
        times.map_or(parts.join(":"), |times| format!("{}*{times}", parts.join(":")))
    }

    /// Performs one step and waits until every worker has come to rest.
    ///
    /// # Errors
    /// What went wrong, as a sentence: a worker that died or finds no rest is a deviation too.
    pub fn perform(&mut self, step: &Step) -> Result<Outcome, String> {
        let mut outcome = Outcome { main: "done".to_owned(), ..Outcome::default() };
        match step {
            Step::Call { worker, store, words } => {
                self.begin(*worker, words);
                self.settle(&mut outcome)?;
                self.split_answer(*worker, store.as_deref(), &mut outcome);
                return Ok(outcome);
            }
            Step::Kill(slot) => {
                let pid = self.peers[*slot].as_ref().expect("checked by can").pid;
                self.signal(pid, libc::SIGKILL);
                self.bury(*slot)?;
            }
            Step::Exit(slot) => {
                self.peers[*slot].as_mut().expect("checked by can").send("exit");
                self.bury(*slot)?;
            }
            Step::Spawn(slot) => self.spawn(*slot)?,
            Step::Fork { parent, child } => self.fork(*parent, *child)?,
            Step::Exec(slot) => {
                let old = self.peers[*slot].as_mut().expect("checked by can");
                old.send("exec");
                let pid = old.pid;
                let again = self.welcome(*slot, Some(pid), true)?;
                debug_assert_eq!(pid, again, "exec keeps the process id");
            }
            Step::Signal(slot) | Step::IgnoredSignal(slot) => {
                let pid = self.peers[*slot].as_ref().expect("checked by can").pid;
                let handled = matches!(step, Step::Signal(_));
                self.signal(pid, if handled { libc::SIGUSR1 } else { libc::SIGUSR2 });
            }
            Step::Tick => {}
        }
        self.settle(&mut outcome)?;
        Ok(outcome)
    }

    fn begin(&mut self, worker: usize, words: &[String]) {
        let resolved: Vec<String> = words.iter().map(|word| self.resolve(word)).collect();
        let timeout = (words[0] == "semop").then(|| words.get(2)).flatten();
        let ends_soon =
            timeout.and_then(|word| word.parse::<i64>().ok()).is_some_and(|ms| ms <= SHORT_TIMEOUT_MS);
        let peer = self.peers[worker].as_mut().expect("checked by can");
        let kind = if words[0].is_char_boundary(3) { words[0][..3].to_owned() } else { String::new() };
        peer.pending = Some(Pending { words: words.to_vec(), kind, id: resolved.get(1).cloned(), ends_soon });
        peer.send(&resolved.join(" "));
        if matches!(words[0].as_str(), "euid" | "uid" | "egid") {
            peer.plain_root = resolved.get(1).is_some_and(|word| word == "0");
        }
    }

    /// Moves the answer to the step's own command to where it belongs, and keeps the id.
    fn split_answer(&mut self, worker: usize, store: Option<&str>, outcome: &mut Outcome) {
        outcome.main = outcome.others.remove(&worker).unwrap_or_else(|| "blocked".to_owned());
        if let (Some(name), Some(label)) = (store, outcome.main.strip_prefix("ok id=")) {
            if let Some(id) = self.translator.id_of(label) {
                self.variables.insert(name.to_owned(), id);
            }
        }
    }

    /// Waits until every worker is idle or blocked, and collects the answers on the way.
    ///
    /// # Errors
    /// A worker that has died or finds no rest.
    pub fn settle(&mut self, outcome: &mut Outcome) -> Result<(), String> {
        let began = Instant::now();
        let mut quiet_rounds = 0;
        loop {
            self.collect(outcome);
            let states: Vec<Activity> = self.peers.iter().flatten().map(Peer::activity).collect();
            if let Some(position) = states.iter().position(|state| *state == Activity::Gone) {
                let peer = self.peers.iter().flatten().nth(position).expect("counted");
                return Err(format!("a worker died unexpectedly: {}", peer.describe()));
            }
            if states.contains(&Activity::Running) {
                quiet_rounds = 0;
            } else {
                quiet_rounds += 1;
            }
            // Twice: in between one that was still awake may have woken another.
            if quiet_rounds == 2 {
                break;
            }
            if began.elapsed() > PATIENCE {
                let all: Vec<String> = self.peers.iter().flatten().map(Peer::describe).collect();
                return Err(format!("the workers find no rest: {}", all.join("; ")));
            }
            if quiet_rounds == 0 {
                let waiting: Vec<_> = self.peers.iter().flatten().filter(|p| p.pending.is_some()).collect();
                poll(&waiting.iter().map(|peer| peer.descriptor()).collect::<Vec<_>>(), 1);
            }
        }
        outcome.blocked = (0..=SLOTS).filter(|&slot| self.is_blocked(slot)).collect();
        Ok(())
    }

    fn is_blocked(&self, slot: usize) -> bool {
        self.peers[slot].as_ref().is_some_and(|peer| peer.pending.is_some())
    }

    fn collect(&mut self, outcome: &mut Outcome) {
        for slot in 0..=SLOTS {
            let Some(peer) = self.peers[slot].as_mut().filter(|peer| peer.pending.is_some()) else {
                continue;
            };
            if let Some(answer) = peer.answer() {
                let pending = peer.pending.take().expect("it was pending");
                outcome.others.insert(slot, self.translator.translate(&pending.kind, &answer));
            }
        }
    }

    /// The names of ids that are in use in the script.
    pub fn variables(&self) -> Vec<String> {
        self.variables.keys().cloned().collect()
    }

    /// What the kernel holds in this side's namespace. Nothing, if all calls were taken from it.
    pub fn kernel_objects(&self) -> Vec<String> {
        self.enter_namespace();
        let files = ["shm", "sem", "msg"].map(|kind| format!("/proc/sysvipc/{kind}"));
        let texts = files.iter().filter_map(|path| std::fs::read_to_string(path).ok());
        texts.flat_map(|text| text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>()).collect()
    }
}

/// Names of ids: `sem0`, `msg1`, `shm2`.
fn is_variable(word: &str) -> bool {
    let kinds = ["sem", "msg", "shm"];
    kinds.iter().any(|kind| word.strip_prefix(kind).is_some_and(|rest| rest.parse::<u8>().is_ok()))
}

fn poll(descriptors: &[i32], timeout_ms: i32) {
    let mut list: Vec<libc::pollfd> =
        descriptors.iter().map(|&fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 }).collect();
    // SAFETY: the list has as many entries as is said.
    unsafe { libc::poll(list.as_mut_ptr(), list.len() as _, timeout_ms) };
}
