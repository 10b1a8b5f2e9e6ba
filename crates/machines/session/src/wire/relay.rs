//! The messages between the relay of a launcher's remote shells, the host and the shells. Each is a line of
//! JSON.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Bytes of the longest line.
pub const MAX_LINE: usize = 256 * 1024;
/// Most remote commands at a time.
pub const MAX_REQUESTS: usize = 1024;

/// A message of the relay to the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum RelayMessage {
    /// The relay works. It says this first, and once.
    Ready {
        /// The program that a launcher is to use as its remote shell.
        shell: PathBuf,
    },
    /// A shell wants a command started.
    Start {
        /// The request's number, of the relay's choice, which no other has at the time.
        id: u64,
        /// The host to start it in.
        host: String,
        /// The command, as one text for a shell.
        command: String,
    },
    /// The shell of this request has ended before its command.
    #[serde(rename = "hungup")]
    HungUp {
        /// The request's number.
        id: u64,
    },
}

/// The host's answer to a request, which ends it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The request's number.
    pub id: u64,
    /// The outcome.
    pub end: RequestOutcome,
}

/// The outcome of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum RequestOutcome {
    /// The command has ended.
    Ended {
        /// Its exit code, as shells report it.
        code: u8,
    },
    /// The command was not started.
    Refused {
        /// The reason, as a sentence.
        why: String,
    },
}

/// The request of a remote shell to the relay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShellRequest {
    /// The token of the relay's program, which shows that it has started the shell.
    pub token: String,
    /// The host to start a command in.
    pub host: String,
    /// The command, as one text for a shell.
    pub command: String,
}

/// A message as a line.
pub fn to_line(message: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(message).expect("a message is plain data");
    line.push(b'\n');
    line
}

/// The message in a line. `None`: there is none.
pub fn from_line<T: DeserializeOwned>(line: &[u8]) -> Option<T> {
    serde_json::from_slice(line).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_as_documented() {
        let text = |line: Vec<u8>| String::from_utf8(line).unwrap();
        let ready = RelayMessage::Ready { shell: "/proc/7/fd/3".into() };
        assert_eq!(text(to_line(&ready)), "{\"ready\":{\"shell\":\"/proc/7/fd/3\"}}\n");
        let start = RelayMessage::Start { id: 1, host: "vm1".into(), command: "a \"b c\"".into() };
        let line = "{\"start\":{\"id\":1,\"host\":\"vm1\",\"command\":\"a \\\"b c\\\"\"}}\n";
        assert_eq!(text(to_line(&start)), line);
        assert_eq!(text(to_line(&RelayMessage::HungUp { id: 1 })), "{\"hungup\":{\"id\":1}}\n");
        let ended = Answer { id: 1, end: RequestOutcome::Ended { code: 3 } };
        assert_eq!(text(to_line(&ended)), "{\"id\":1,\"end\":{\"ended\":{\"code\":3}}}\n");
        let refused = Answer { id: 1, end: RequestOutcome::Refused { why: "no".into() } };
        assert_eq!(text(to_line(&refused)), "{\"id\":1,\"end\":{\"refused\":{\"why\":\"no\"}}}\n");
        for message in [ready, start, RelayMessage::HungUp { id: u64::MAX }] {
            assert_eq!(from_line(to_line(&message).trim_ascii_end()), Some(message));
        }
        assert_eq!(from_line::<RelayMessage>(b"{\"hungup\":{\"id\":-1}}"), None);
        assert_eq!(from_line::<RelayMessage>(b"{\"hungup\":{\"id\":1,\"more\":1}}"), None);
    }
}
