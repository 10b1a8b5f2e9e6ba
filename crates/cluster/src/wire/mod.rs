//! What passes between `vshmem` on the host and the agent in a machine, over a virtio-serial port.
//!
//! A session begins with a greeting: the host sends [`HELLO`] and 16 random bytes, the agent answers with
//! [`WELCOME`] and the same bytes. Until it has seen the greeting, each side throws away what comes in: the port may
//! still hold the rest of an earlier session whose host end was killed. After it come frames (see [`frame`]).
//!
//! A session runs any number of commands, [`frame::MAX_STREAMS`] at once at the most: the frames of each have its number. The host chooses a
//! number that no command has whose end it was not told; frames for a command that has ended cross the message of its end, and mean nothing.
//!
//! Input has a window for each command ([`STDIN_WINDOW`]). Output has none: the commands take turns at a channel, and the host reads what
//! comes, since all of it goes to the same place there.
//!
//! The host repeats its greeting now and then, between frames. An agent that welcomes it again has forgotten the session, for its machine was
//! reset; one that knows it answers by a frame, and one that does not answer is in a machine that stands still.

pub mod frame;
pub mod start;

use frame::Frame;

/// First half of the host's greeting; its last digit is the version of the protocol.
pub const HELLO: [u8; 16] = *b"vshmem-hello-/2\n";
/// First half of the agent's answer.
pub const WELCOME: [u8; 16] = *b"vshmem-welcom/2\n";
/// The random half of a greeting.
pub type Nonce = [u8; 16];
/// The name that virtio-serial ports carry, before their number.
pub const PORT_NAME: &str = "vshmem.";
/// The most bytes of standard input that may be on their way to a command which has not read them.
pub const STDIN_WINDOW: usize = 64 * 1024;

/// A greeting as it goes over the wire.
pub fn greeting(half: &[u8; 16], nonce: &Nonce) -> [u8; 32] {
    let mut out = [0; 32];
    out[..16].copy_from_slice(half);
    out[16..].copy_from_slice(nonce);
    out
}

/// Looks for a greeting in what came in. Drops all before it, and it; leaves what may be the beginning of one.
pub fn find_greeting(buffer: &mut Vec<u8>, half: &[u8; 16]) -> Option<Nonce> {
    let at = buffer.windows(16).position(|window| window == half);
    match at {
        Some(at) if buffer.len() >= at + 32 => {
            let nonce = buffer[at + 16..at + 32].try_into().expect("16 bytes");
            buffer.drain(..at + 32);
            Some(nonce)
        }
        Some(at) => {
            buffer.drain(..at);
            None
        }
        None => {
            let keep = buffer.len().min(15);
            buffer.drain(..buffer.len() - keep);
            None
        }
    }
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It called exit with this code.
    Exited(u8),
    /// This signal killed it.
    Killed(u8),
}

impl Ended {
    /// The exit code by which a shell would tell it.
    pub fn code(self) -> u8 {
        match self {
            Ended::Exited(code) => code,
            Ended::Killed(signal) => 128u8.saturating_add(signal),
        }
    }

    /// From what `waitpid` says.
    pub fn from_wait(status: i32) -> Ended {
        if libc::WIFSIGNALED(status) {
            Ended::Killed(libc::WTERMSIG(status) as u8)
        } else {
            Ended::Exited(libc::WEXITSTATUS(status) as u8)
        }
    }

    /// As the payload of an exit frame.
    pub fn to_bytes(self) -> [u8; 2] {
        match self {
            Ended::Exited(code) => [0, code],
            Ended::Killed(signal) => [1, signal],
        }
    }

    /// From an exit frame.
    pub fn from_frame(frame: &Frame) -> Option<Ended> {
        match frame.payload[..] {
            [0, code] => Some(Ended::Exited(code)),
            [1, signal] => Some(Ended::Killed(signal)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_greeting_is_found_behind_an_old_sessions_rest() {
        let nonce = *b"0123456789abcdef";
        let mut stream = b"old output vshmem-hel".to_vec();
        stream.extend_from_slice(&greeting(&HELLO, &nonce));
        stream.extend_from_slice(b"next");
        let mut buffer = Vec::new();
        let mut found = None;
        for (i, &byte) in stream.iter().enumerate() {
            buffer.push(byte);
            if let Some(nonce) = find_greeting(&mut buffer, &HELLO) {
                assert!(found.is_none());
                assert_eq!(i, stream.len() - 5);
                found = Some(nonce);
                break;
            }
            assert!(buffer.len() < 32 + 16);
        }
        assert_eq!(found, Some(nonce));
        assert!(buffer.is_empty());
    }

    #[test]
    fn noise_is_not_kept() {
        let mut buffer = vec![7; 100_000];
        assert_eq!(find_greeting(&mut buffer, &HELLO), None);
        assert_eq!(buffer.len(), 15);
    }

    #[test]
    fn endings_survive_the_wire() {
        for ended in [Ended::Exited(0), Ended::Exited(255), Ended::Killed(9)] {
            let frame = Frame {
                kind: frame::Kind::Exit,
                stream: 0,
                payload: ended.to_bytes().to_vec(),
            };
            assert_eq!(Ended::from_frame(&frame), Some(ended));
        }
        let odd = Frame {
            kind: frame::Kind::Exit,
            stream: 0,
            payload: vec![2, 0],
        };
        assert_eq!(Ended::from_frame(&odd), None);
        assert_eq!(Ended::Killed(15).code(), 143);
    }
}
