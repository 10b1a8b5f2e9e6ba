//! Frames: a byte for the kind, two for the stream's number, a zero byte, four bytes for the length, the
//! payload. Numbers are little-endian.
//!
//! Both ends distrust what they read: a guest may be broken or hostile, and the rest of an earlier session
//! may be in the way.

use super::greeting::Nonce;
use serde::de::DeserializeOwned;
use std::fmt;

/// The longest payload of a frame: a command with its arguments and environment, of which Linux takes 2 MiB
/// as a rule, and a byte of which takes up to four.
pub const MAX_PAYLOAD: usize = 8 << 20;
/// The longest payload of a frame that carries input or output.
pub const MAX_DATA: usize = 16 << 10;
/// Commands that can run at once in one session; their numbers are below this one.
pub const MAX_STREAMS: u16 = 1024;
/// Bytes of standard input that may be in flight to a command that has not read them.
pub const STDIN_WINDOW: usize = 64 * 1024;
const HEADER: usize = 8;

/// The kind of a frame. The numbers are part of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A message about the command ([`super::message`]).
    Message = 1,
    /// Host: standard input; an empty payload ends it.
    Stdin = 2,
    /// Agent: output.
    Stdout = 18,
    /// Agent: output for the error stream.
    Stderr = 19,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Kind> {
        let all = [Kind::Message, Kind::Stdin, Kind::Stdout, Kind::Stderr];
        all.into_iter().find(|&kind| kind as u8 == byte)
    }
}

/// One frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Its kind.
    pub kind: Kind,
    /// The number of its command.
    pub stream: u16,
    /// Its contents.
    pub payload: Vec<u8>,
}

impl Frame {
    /// The message in it; `None` if it is damaged.
    pub fn message<M: DeserializeOwned>(&self) -> Option<M> {
        serde_json::from_slice(&self.payload).ok()
    }
}

/// Reasons for which a stream can't be read any further.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameError {
    /// No frame begins with these four bytes.
    Header([u8; 4]),
    /// A frame claims to be too long.
    Length(u32),
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FrameError::Header(bytes) => write!(f, "no frame begins with the bytes {bytes:02x?}"),
            FrameError::Length(len) => write!(f, "a frame of {len} bytes is too long"),
        }
    }
}

/// Appends a frame to `out`.
pub fn encode(kind: Kind, stream: u16, payload: &[u8], out: &mut impl Extend<u8>) {
    assert!(payload.len() <= MAX_PAYLOAD, "callers keep payloads below the limit");
    let [low, high] = stream.to_le_bytes();
    out.extend([kind as u8, low, high, 0]);
    out.extend((payload.len() as u32).to_le_bytes());
    out.extend(payload.iter().copied());
}

/// A greeting in place of a stream's next frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interruption {
    /// There is none, but a frame or its beginning.
    None,
    /// The beginning of a greeting.
    Begun,
    /// A greeting with this nonce.
    Greeting(Nonce),
}

/// A parser, which splits input into frames.
#[derive(Default)]
pub struct Parser {
    buffer: Vec<u8>,
    /// Bytes that were made into frames.
    used: usize,
}

impl Parser {
    /// A parser that starts with input that was read earlier.
    pub fn new(rest: Vec<u8>) -> Parser {
        Parser { buffer: rest, used: 0 }
    }

    /// Adds input.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.used);
        self.used = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole frame, if there is one.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        let left = &self.buffer[self.used..];
        let Some(header) = left.first_chunk::<HEADER>() else {
            return Ok(None);
        };
        let [tag @ .., _, _, _, _] = *header;
        let stream = u16::from_le_bytes([tag[1], tag[2]]);
        let kind = match (Kind::from_byte(tag[0]), tag[3]) {
            (Some(kind), 0) if stream < MAX_STREAMS => kind,
            _ => return Err(FrameError::Header(tag)),
        };
        let [_, _, _, _, len @ ..] = *header;
        let len = u32::from_le_bytes(len);
        if len as usize > MAX_PAYLOAD {
            return Err(FrameError::Length(len));
        }
        let end = HEADER + len as usize;
        let Some(payload) = left.get(HEADER..end) else {
            return Ok(None);
        };
        let payload = payload.to_vec();
        self.used += end;
        Ok(Some(Frame { kind, stream, payload }))
    }

    /// The greeting in place of a frame, if there is one: its sender began a new session.
    pub fn interruption(&mut self, half: &[u8; 16]) -> Interruption {
        let left = &self.buffer[self.used..];
        let len = left.len().min(16);
        if len == 0 || left[..len] != half[..len] {
            return Interruption::None;
        }
        let Some(nonce) = left.get(16..32) else {
            return Interruption::Begun;
        };
        let nonce = nonce.try_into().expect("16 bytes");
        self.used += 32;
        Interruption::Greeting(nonce)
    }

    /// Input that was not made into a frame.
    pub fn into_rest(mut self) -> Vec<u8> {
        self.buffer.split_off(self.used)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(stream: &[u8], step: usize) -> Result<Vec<Frame>, FrameError> {
        let mut parser = Parser::default();
        let mut out = Vec::new();
        for chunk in stream.chunks(step) {
            parser.push(chunk);
            while let Some(frame) = parser.next_frame()? {
                out.push(frame);
            }
        }
        Ok(out)
    }

    #[test]
    fn frames_survive_any_cutting() {
        let mut stream = Vec::new();
        encode(Kind::Stdout, 7, b"hello", &mut stream);
        encode(Kind::Stdin, 0, b"", &mut stream);
        encode(Kind::Message, MAX_STREAMS - 1, &[9; 5000], &mut stream);
        for step in [1, 2, 7, 8, 9, 4096, 100_000] {
            let got = frames(&stream, step).unwrap();
            let sizes = got.iter().map(|f| (f.kind, f.stream, f.payload.len()));
            assert_eq!(
                sizes.collect::<Vec<_>>(),
                [(Kind::Stdout, 7, 5), (Kind::Stdin, 0, 0), (Kind::Message, 1023, 5000)]
            );
        }
    }

    #[test]
    fn the_longest_frame_passes_and_a_longer_one_does_not() {
        let header = |len: usize| {
            let mut out = vec![Kind::Message as u8, 0, 0, 0];
            out.extend_from_slice(&(len as u32).to_le_bytes());
            out
        };
        assert_eq!(frames(&header(MAX_PAYLOAD), 8), Ok(vec![]));
        let over = MAX_PAYLOAD as u32 + 1;
        assert_eq!(frames(&header(MAX_PAYLOAD + 1), 8), Err(FrameError::Length(over)));
        assert_eq!(frames(&header(u32::MAX as usize), 8), Err(FrameError::Length(u32::MAX)));
    }

    #[test]
    fn garbage_is_no_frame() {
        for byte in 0..=255u8 {
            let ok = Kind::from_byte(byte).is_some();
            assert_eq!(frames(&[byte, 0, 0, 0, 0, 0, 0, 0], 8).is_ok(), ok, "{byte}");
            assert!(frames(&[byte, 0, 0, 1, 0, 0, 0, 0], 8).is_err());
            assert!(frames(&[byte, 0, 4, 0, 0, 0, 0, 0], 8).is_err());
        }
    }

    #[test]
    fn a_greeting_between_frames_is_seen() {
        let half = crate::wire::greeting::HELLO;
        let mut stream = half.to_vec();
        stream.extend_from_slice(&[5; 16]);
        encode(Kind::Stdout, 3, &[0, 0], &mut stream);
        let mut parser = Parser::default();
        assert_eq!(parser.interruption(&half), Interruption::None);
        for &byte in &stream[..31] {
            parser.push(&[byte]);
            assert_eq!(parser.interruption(&half), Interruption::Begun);
        }
        parser.push(&stream[31..]);
        assert_eq!(parser.interruption(&half), Interruption::Greeting([5; 16]));
        assert_eq!(parser.interruption(&half), Interruption::None);
        assert_eq!(parser.next_frame().unwrap().map(|frame| frame.kind), Some(Kind::Stdout));
    }

    #[test]
    fn random_streams_never_crash_it() {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut random = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        for _ in 0..2000 {
            let len = (random() % 64) as usize;
            let mut bytes: Vec<u8> = (0..len).map(|_| random() as u8).collect();
            if len > 8 {
                bytes[..8].copy_from_slice(&[18, 0, 0, 0, random() as u8 % 32, 0, 0, 0]);
            }
            let _ = frames(&bytes, 1 + (random() % 16) as usize);
        }
    }
}
