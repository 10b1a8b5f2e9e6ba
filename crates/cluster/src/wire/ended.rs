//! How a command ended.

use super::frame::Frame;

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It called exit with this code.
    Exited(u8),
    /// This signal killed it.
    Killed(u8),
}

impl Ended {
    /// The exit code by which a shell reports it.
    pub fn code(self) -> u8 {
        match self {
            Ended::Exited(code) => code,
            Ended::Killed(signal) => 128u8.saturating_add(signal),
        }
    }

    /// From the status of `waitpid`.
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
    use crate::wire::frame;

    #[test]
    fn endings_survive_the_wire() {
        for ended in [Ended::Exited(0), Ended::Exited(255), Ended::Killed(9)] {
            let frame = Frame { kind: frame::Kind::Exit, stream: 0, payload: ended.to_bytes().to_vec() };
            assert_eq!(Ended::from_frame(&frame), Some(ended));
        }
        let odd = Frame { kind: frame::Kind::Exit, stream: 0, payload: vec![2, 0] };
        assert_eq!(Ended::from_frame(&odd), None);
        assert_eq!(Ended::Killed(15).code(), 143);
    }
}
