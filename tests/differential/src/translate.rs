//! Makes what one side says comparable with what the other says: ids, process ids and times
//! become labels.

use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds since the epoch.
pub fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs() as i64)
}

/// The labels of one side.
pub struct Translator {
    /// Ids in the order in which they first appeared, by kind (sem, msg, shm).
    ids: HashMap<String, Vec<i64>>,
    processes: HashMap<i64, String>,
    /// The second at which each stretch of time began; ticks begin new ones.
    stretches: Vec<i64>,
}

impl Translator {
    pub fn new() -> Translator {
        Translator { ids: HashMap::new(), processes: HashMap::new(), stretches: vec![now()] }
    }

    pub fn name_process(&mut self, pid: i32, name: String) {
        self.processes.insert(pid.into(), name);
    }

    /// From now on it is another time.
    pub fn tick(&mut self, second: i64) {
        self.stretches.push(second);
    }

    /// A worker's reply with labels in place of what differs between the sides. `kind` says what its ids are
    /// of.
    pub fn translate(&mut self, kind: &str, reply: &str) -> String {
        if let Some(errno) = reply.strip_prefix("err ") {
            return crate::names::error(errno.parse().unwrap_or(0));
        }
        let mut parts: Vec<String> = reply.split(" ; ").map(|part| self.translate_part(kind, part)).collect();
        if parts.len() > 1 {
            // A scan: the order is that of the indices, which each side chooses as it likes.
            parts[0] = parts[0].strip_prefix("ok ").unwrap_or(&parts[0]).to_owned();
            parts.sort();
            return format!("ok {}", parts.join(" ; "));
        }
        parts.remove(0)
    }

    fn translate_part(&mut self, kind: &str, text: &str) -> String {
        let mut result = String::new();
        let mut rest = text;
        let is_sigil = |pair: &[u8]| pair[0] == b'=' && matches!(pair[1], b'!' | b'%' | b'@');
        while let Some(position) = rest.as_bytes().windows(2).position(is_sigil) {
            let (before, from) = rest.split_at(position + 1);
            let sigil = from.as_bytes()[0];
            let digits = &from[1..];
            let end = digits.find(|c: char| !c.is_ascii_digit() && c != '-').unwrap_or(digits.len());
            let value: i64 = digits[..end].parse().unwrap_or(0);
            result += before;
            result += &match sigil {
                b'!' => self.id(kind, value),
                b'%' => self.process(value),
                _ => self.time(value),
            };
            rest = &digits[end..];
        }
        result + rest
    }

    fn id(&mut self, kind: &str, id: i64) -> String {
        let known = self.ids.entry(kind.to_owned()).or_default();
        let position = known.iter().position(|&other| other == id).unwrap_or_else(|| {
            known.push(id);
            known.len() - 1
        });
        format!("{kind}:{position}")
    }

    /// The id behind a label of this side.
    pub fn id_of(&self, label: &str) -> Option<i64> {
        let (kind, position) = label.split_once(':')?;
        self.ids.get(kind)?.get(position.parse::<usize>().ok()?).copied()
    }

    fn process(&self, pid: i64) -> String {
        match pid {
            0 => "nobody".to_owned(),
            _ => self.processes.get(&pid).cloned().unwrap_or_else(|| format!("stranger({pid})")),
        }
    }

    fn time(&self, second: i64) -> String {
        // The kernel's coarse clock may lag behind ours by a tick of its timer.
        let stretch = self.stretches.iter().rposition(|&began| began - 1 <= second);
        match (second, stretch) {
            (0, _) => "never".to_owned(),
            (_, Some(stretch)) if second <= now() + 1 => format!("time{stretch}"),
            _ => format!("wrong({} s off)", second - now()),
        }
    }
}
