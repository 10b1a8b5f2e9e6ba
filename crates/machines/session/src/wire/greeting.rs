//! The greeting that begins a session.

/// First half of the host's greeting; its last digit is the version of the protocol.
pub const HELLO: [u8; 16] = *b"vshmem-hello-/6\n";
/// First half of the agent's answer.
pub const WELCOME: [u8; 16] = *b"vshmem-welcom/6\n";
/// The random half of a greeting.
pub type Nonce = [u8; 16];

/// A greeting as bytes.
pub fn greeting(half: &[u8; 16], nonce: &Nonce) -> [u8; 32] {
    let mut out = [0; 32];
    out[..16].copy_from_slice(half);
    out[16..].copy_from_slice(nonce);
    out
}

/// Looks for a greeting in the input, and removes it with everything before it. Keeps what may be the
/// beginning of one.
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
}
