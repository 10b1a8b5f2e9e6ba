//! Messages about commands, in JSON.

use super::ended::Ended;
use super::frame::{encode, Kind, MAX_PAYLOAD};
use super::start::{Size, Start};
use serde::{Deserialize, Serialize};
use vshmem_base::error::{error, Result};

/// A message of the host about one command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HostMessage {
    /// Start it.
    Start(Box<Start>),
    /// Send it this signal.
    Signal(i32),
    /// The size of its terminal has changed.
    Resize(Size),
}

/// A message of a machine's agent about one command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AgentMessage {
    /// It could not be started; the last frame of its stream.
    Failed {
        /// The exit code for that.
        code: u8,
        /// The reason, as a sentence.
        why: String,
    },
    /// It has read or discarded so many bytes of input.
    Taken(usize),
    /// It has ended; the last frame of its stream, whose number may be reused.
    Ended(Ended),
    /// The session is known; answers a repeated greeting. It belongs to no stream.
    Here,
}

impl HostMessage {
    /// The message as the payload of a frame. An error if it does not fit into one.
    pub fn to_payload(&self) -> Result<Vec<u8>> {
        let payload = serde_json::to_vec(self).expect("a message is plain data");
        match payload.len() {
            0..=MAX_PAYLOAD => Ok(payload),
            len => {
                Err(error!("the command with its environment takes {len} bytes; {MAX_PAYLOAD} is the most"))
            }
        }
    }
}

impl AgentMessage {
    /// Appends a frame with it to `out`.
    pub fn encode(&self, stream: u16, out: &mut impl Extend<u8>) {
        let payload = serde_json::to_vec(self).expect("a message is plain data");
        encode(Kind::Message, stream, &payload, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;

    fn sample() -> Start {
        Start {
            argv: vec!["sh".into(), "-c".into(), OsString::from_vec(vec![0xff, b'x'])],
            env: vec![("A".into(), "1".into()), ("EMPTY".into(), "".into())],
            cwd: "/tmp".into(),
            cwd_optional: true,
            stdin: true,
            login: true,
            terminal: Some(Size { rows: 24, columns: 300 }),
            uid: 1000,
            gid: 100,
            groups: vec![4, 24],
            inherits: true,
            ends_with_session: true,
            scratch: true,
            needs: vec!["/tmp/x/libvshmem.so".into()],
        }
    }

    #[test]
    fn a_request_survives_the_wire_and_a_damaged_one_is_refused() {
        let start = HostMessage::Start(Box::new(sample()));
        let bytes = start.to_payload().unwrap();
        let read = |bytes: &[u8]| serde_json::from_slice::<HostMessage>(bytes).ok();
        assert_eq!(read(&bytes), Some(start));
        for len in 0..bytes.len() {
            assert_eq!(read(&bytes[..len]), None, "cut at {len}");
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert_eq!(read(&longer), None);
        for at in (0..bytes.len()).step_by(4) {
            let mut wild = bytes.clone();
            wild[at..(at + 4).min(bytes.len())].fill(0xff);
            let _ = read(&wild);
        }
    }

    #[test]
    fn messages_are_as_documented() {
        let text = |message: &AgentMessage| serde_json::to_string(message).unwrap();
        let failed = AgentMessage::Failed { code: 127, why: "no".into() };
        assert_eq!(text(&failed), r#"{"failed":{"code":127,"why":"no"}}"#);
        assert_eq!(text(&AgentMessage::Taken(7)), r#"{"taken":7}"#);
        assert_eq!(text(&AgentMessage::Ended(Ended::Exited(3))), r#"{"ended":{"exited":3}}"#);
        assert_eq!(text(&AgentMessage::Ended(Ended::Killed(9))), r#"{"ended":{"killed":9}}"#);
        assert_eq!(text(&AgentMessage::Here), r#""here""#);
    }

    #[test]
    fn too_long_a_request_is_refused() {
        let mut start = sample();
        start.argv.push("x".repeat(MAX_PAYLOAD).into());
        assert!(HostMessage::Start(Box::new(start)).to_payload().is_err());
    }
}
