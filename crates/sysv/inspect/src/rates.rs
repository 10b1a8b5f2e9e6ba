//! Messages and bytes per second through the queues of a pool, from two samples.

use schemars::JsonSchema;
use serde::Serialize;

/// Counters at one end of a queue. They start anywhere and wrap at 2^32: only differences mean something.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
pub struct Passed {
    /// Messages.
    pub messages: u32,
    /// Bytes of text.
    pub bytes: u32,
}

/// Traffic per second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, JsonSchema)]
pub struct Rates {
    /// Messages sent.
    pub sent: f64,
    /// Bytes sent.
    pub sent_bytes: f64,
    /// Messages received.
    pub received: f64,
    /// Bytes received.
    pub received_bytes: f64,
}

impl Rates {
    pub(crate) fn between(before: [Passed; 2], now: [Passed; 2], seconds: f64) -> Rates {
        let in_a_second = |now: u32, before: u32| f64::from(now.wrapping_sub(before)) / seconds;
        let [sent, received] = [0, 1].map(|i| {
            let messages = in_a_second(now[i].messages, before[i].messages);
            (messages, in_a_second(now[i].bytes, before[i].bytes))
        });
        Rates { sent: sent.0, sent_bytes: sent.1, received: received.0, received_bytes: received.1 }
    }

    pub(crate) fn add(&mut self, other: &Rates) {
        self.sent += other.sent;
        self.sent_bytes += other.sent_bytes;
        self.received += other.received;
        self.received_bytes += other.received_bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_go_round() {
        let passed = |messages, bytes| Passed { messages, bytes };
        let before = [passed(u32::MAX, u32::MAX - 99), passed(7, 70)];
        let now = [passed(9, 100), passed(7, 70)];
        let rates = Rates::between(before, now, 2.0);
        assert_eq!((rates.sent, rates.sent_bytes), (5.0, 100.0));
        assert_eq!((rates.received, rates.received_bytes), (0.0, 0.0));
    }
}
