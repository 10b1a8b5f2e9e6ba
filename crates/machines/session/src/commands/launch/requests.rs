//! The requests of a launcher's relay. The relay runs in a guest, so its messages may be lies: no message
//! makes this process wait, keep more than a bounded amount of memory, or panic.

use crate::wire::lines::Lines;
use crate::wire::relay::{from_line, to_line, Answer, RelayMessage, RequestOutcome, MAX_LINE, MAX_REQUESTS};
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};

/// Most bytes of answers that wait for the relay to read them.
const MAX_ANSWERS: usize = 1 << 20;
/// Longest reason in an answer, in characters.
const MAX_WHY: usize = 2000;

/// A request of the relay.
#[derive(Debug, PartialEq, Eq)]
pub enum Request {
    /// Start the launcher, which is to use this program as its remote shell.
    Begin(PathBuf),
    /// Start a command.
    Start {
        /// The request's number.
        id: u64,
        /// The host to start it in.
        host: String,
        /// The command, as one text for a shell.
        command: String,
    },
    /// End the command of this request, if it runs.
    End(u64),
}

/// The requests of one relay, and the answers to them.
#[derive(Default)]
pub struct Requests {
    lines: Lines,
    has_begun: bool,
    /// Requests without an answer, with the tasks that were started for them.
    open: BTreeMap<u64, Option<usize>>,
    answers: VecDeque<u8>,
}

impl Requests {
    /// Reads messages of the relay. An error says how they violate the protocol.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<Vec<Request>, &'static str> {
        let lines = self.lines.push(bytes, MAX_LINE).map_err(|_| "a line is too long")?;
        let mut requests = Vec::new();
        for line in lines {
            let message = from_line(&line).ok_or("a line is no message")?;
            requests.extend(self.take(message)?);
        }
        Ok(requests)
    }

    fn take(&mut self, message: RelayMessage) -> Result<Option<Request>, &'static str> {
        if matches!(message, RelayMessage::Ready { .. }) == self.has_begun {
            return Err("it is ready twice, or not at first");
        }
        match message {
            RelayMessage::Ready { shell } if is_plain(&shell) => {
                self.has_begun = true;
                Ok(Some(Request::Begin(shell)))
            }
            RelayMessage::Ready { .. } => Err("its remote shell has no plain absolute path"),
            RelayMessage::Start { .. } if self.open.len() >= MAX_REQUESTS => {
                Err("too many remote commands run")
            }
            RelayMessage::Start { id, .. } if self.open.contains_key(&id) => {
                Err("two requests have one number")
            }
            RelayMessage::Start { id, host, command } => {
                self.open.insert(id, None);
                Ok(Some(Request::Start { id, host, command }))
            }
            RelayMessage::HungUp { id } => Ok(Some(Request::End(id))),
        }
    }

    /// Whether any request has no answer yet.
    pub fn any(&self) -> bool {
        !self.open.is_empty()
    }

    /// The task that was started for a request. `None`: it has been answered, and the answer may be on its
    /// way.
    pub fn task(&self, id: u64) -> Option<usize> {
        self.open.get(&id).copied().flatten()
    }

    /// A task was started for a request.
    pub fn started(&mut self, id: u64, task: usize) {
        self.open.insert(id, Some(task));
    }

    /// A task has ended. False if it was started for no request.
    pub fn ended(&mut self, task: usize, code: u8) -> bool {
        let id = self.open.iter().find(|(_, its)| **its == Some(task)).map(|(id, _)| *id);
        if let Some(id) = id {
            self.answer(id, RequestOutcome::Ended { code });
        }
        id.is_some()
    }

    /// A request was refused.
    pub fn refuse(&mut self, id: u64, why: &str) {
        self.answer(id, RequestOutcome::Refused { why: why.chars().take(MAX_WHY).collect() });
    }

    fn answer(&mut self, id: u64, end: RequestOutcome) {
        self.open.remove(&id);
        self.answers.extend(to_line(&Answer { id, end }));
    }

    /// Answers that may be sent now, `room` bytes at most. An error says how the relay violates the protocol.
    pub fn answers(&mut self, room: usize) -> Result<Vec<u8>, &'static str> {
        let len = room.min(self.answers.len());
        let some = self.answers.drain(..len).collect();
        match self.answers.len() {
            0..=MAX_ANSWERS => Ok(some),
            _ => Err("it does not read the answers to its requests"),
        }
    }
}

/// An absolute path that says nothing else to a launcher or a terminal.
fn is_plain(path: &Path) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '-');
    path.is_absolute() && path.to_str().is_some_and(|path| path.len() < 4096 && path.chars().all(plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    const READY: &str = "{\"ready\":{\"shell\":\"/proc/7/fd/3\"}}\n";

    fn start(id: u64) -> String {
        format!("{{\"start\":{{\"id\":{id},\"host\":\"vm1\",\"command\":\"x\"}}}}\n")
    }

    fn begun() -> Requests {
        let mut requests = Requests::default();
        assert_eq!(requests.receive(READY.as_bytes()), Ok(vec![Request::Begin("/proc/7/fd/3".into())]));
        requests
    }

    #[test]
    fn a_request_is_answered_once() {
        let mut requests = begun();
        let want = Request::Start { id: 4, host: "vm1".into(), command: "x".into() };
        assert_eq!(requests.receive(start(4).as_bytes()), Ok(vec![want]));
        requests.started(4, 9);
        assert_eq!((requests.task(4), requests.task(5)), (Some(9), None));
        assert!(!requests.ended(8, 0), "it is none of them");
        assert!(requests.ended(9, 3));
        assert!(!requests.ended(9, 3), "it was answered");
        assert_eq!(requests.task(4), None);
        let answer = b"{\"id\":4,\"end\":{\"ended\":{\"code\":3}}}\n";
        assert_eq!(requests.answers(5), Ok(answer[..5].to_vec()));
        assert_eq!(requests.answers(100), Ok(answer[5..].to_vec()));
    }

    /// Both are read at once.
    #[test]
    fn a_shell_may_hang_up_as_soon_as_it_has_asked() {
        let said = [start(4).as_bytes(), b"{\"hungup\":{\"id\":4}}\n"].concat();
        let wanted = begun().receive(&said).expect("it may be said");
        assert!(matches!(wanted[..], [Request::Start { id: 4, .. }, Request::End(4)]), "{wanted:?}");
    }

    #[test]
    fn what_violates_the_protocol_is_an_error() {
        let twice = [start(1), start(1)].concat();
        for said in ["\n", "{}\n", "x\n", READY, &twice] {
            assert!(begun().receive(said.as_bytes()).is_err(), "{said}");
        }
        for path in ["rsh", "/a b", "/a;b", "/\u{1b}[2J", "/a\\nb", "/\u{e4}"] {
            let said = format!("{{\"ready\":{{\"shell\":\"{path}\"}}}}\n");
            assert!(Requests::default().receive(said.as_bytes()).is_err(), "{path}");
        }
        assert!(Requests::default().receive(start(1).as_bytes()).is_err(), "it is not ready");
        let endless = vec![b'x'; MAX_LINE + 1];
        assert!(begun().receive(&endless).is_err());
    }

    #[test]
    fn what_the_relay_may_ask_for_is_bounded() {
        let mut requests = begun();
        for id in 0..MAX_REQUESTS as u64 {
            assert!(requests.receive(start(id).as_bytes()).is_ok());
        }
        assert!(requests.receive(start(1 << 40).as_bytes()).is_err());
        let mut requests = begun();
        let all = (0..1 << 20).find(|id| {
            assert!(requests.receive(start(*id).as_bytes()).is_ok());
            requests.refuse(*id, &"\u{1}".repeat(MAX_WHY * 2));
            requests.answers(0).is_err()
        });
        assert!(all.is_some_and(|count| (50..1000).contains(&count)), "{all:?}");
    }
}
