//! Parsers of QEMU's answers, and of records about them and its templates, as functions of bytes. They panic
//! if a parser is at fault.

use super::probe;
use crate::running::attached::Attached;
use crate::running::{pci, plug, qmp};
use crate::template::store;
use serde_json::Value;

/// A parser under test.
type Reader = fn(&[u8]);

/// The parsers, by name.
pub const READERS: &[(&str, Reader)] =
    &[("monitor", monitor), ("attached", attached), ("template", template)];

/// Answers of QEMU's monitor.
fn monitor(text: &[u8]) {
    let Ok(answer) = serde_json::from_slice::<Value>(text) else {
        return;
    };
    let value = match qmp::result_of(&answer) {
        Some(Ok(value)) => value,
        _ => answer,
    };
    let _ = qmp::parse_threads(&value);
    let _ = plug::channel_in(&value, "agent", None);
    if let Ok(tree) = pci::read(&value) {
        for size in [1 << 20, 1 << 30, u64::MAX] {
            if let Ok(bus) = tree.bus_for(size) {
                assert!(bus.largest >= size, "a bus with room");
            }
        }
        assert!(tree.plugged.iter().all(|p| tree.of(&p.pool).is_some()), "found again");
    }
}

/// Records of attached machines, and verdicts about KVM.
fn attached(text: &[u8]) {
    if let Ok(attached) = serde_json::from_slice::<Attached>(text) {
        serde_json::to_vec(&attached).expect("plain data");
    }
    let _ = probe::parse_verdict(&String::from_utf8_lossy(text), "question");
}

/// Descriptions of templates.
fn template(text: &[u8]) {
    if let Ok(kept) = store::parse(text) {
        let again = serde_json::to_vec(&kept).expect("plain data");
        assert_eq!(store::parse(&again), Ok(kept), "read again");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_parsed() {
        let answer: &[u8] = br#"{"return":[{"bus":0,"devices":[{"qdev_id":"","id":{"vendor":32902,"device":4663},"slot":0}]}]}"#;
        for end in 0..=answer.len() {
            monitor(&answer[..end]);
        }
        attached(b"question\nkvm\n");
        let kept = br#"{"version":1,"key":"a: b","cpus":1,"memory":5,"accel":"x","kernel":"6.1","made":7}"#;
        assert!(store::parse(kept).is_ok());
        for end in 0..=kept.len() {
            template(&kept[..end]);
        }
    }
}
