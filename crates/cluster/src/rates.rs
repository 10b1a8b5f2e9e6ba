//! What has passed the queues of a pool between two samples, in a second.

use crate::sample::{Passed, Sample};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::HashMap;

/// What has passed in a second.
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
    fn between(before: [Passed; 2], now: [Passed; 2], seconds: f64) -> Rates {
        let in_a_second = |now: u32, before: u32| f64::from(now.wrapping_sub(before)) / seconds;
        let [sent, received] = [0, 1].map(|i| {
            let messages = in_a_second(now[i].messages, before[i].messages);
            (messages, in_a_second(now[i].bytes, before[i].bytes))
        });
        Rates {
            sent: sent.0,
            sent_bytes: sent.1,
            received: received.0,
            received_bytes: received.1,
        }
    }

    fn add(&mut self, other: &Rates) {
        self.sent += other.sent;
        self.sent_bytes += other.sent_bytes;
        self.received += other.received;
        self.received_bytes += other.received_bytes;
    }
}

impl Sample {
    /// Fills the rates in, by what the pool was like before. Queues that were not there then have none: their counts begin anywhere.
    pub fn compare(&mut self, before: &Sample) {
        let seconds = self.time - before.time;
        if seconds <= 0.0 {
            return;
        }
        let then: HashMap<i32, [Passed; 2]> = before
            .queues
            .iter()
            .map(|q| (q.object.id, [q.sent, q.received]))
            .collect();
        let mut all = Rates::default();
        for queue in &mut self.queues {
            if let Some(before) = then.get(&queue.object.id) {
                let rates = Rates::between(*before, [queue.sent, queue.received], seconds);
                all.add(&rates);
                queue.rates = Some(rates);
            }
        }
        self.rates = Some(all);
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
