//! What the host and the front end say to each other: a line of JSON each.

use serde::{Deserialize, Serialize};

/// The virtio-serial port on which they talk.
pub const PORT: &str = "org.vshmem.agent";
/// Longest line in bytes, either way.
pub const LONGEST: usize = 64 << 10;

/// What the host asks. Exactly one of the two is there.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Ask {
    /// Any number; the answer has it, too.
    pub id: u64,
    /// All pools that are granted to the machine while it runs: what is missing is granted no longer.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pools: Option<Vec<GrantedPool>>,
    /// Tell how everything is.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub status: Option<Nothing>,
}

/// `{}`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Nothing {}

/// A pool that is granted.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GrantedPool {
    /// The PCI address of its device in the machine.
    pub address: String,
    /// What it is called.
    pub name: String,
}

/// The answer to a table of pools.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Granted {
    /// The request's.
    pub id: u64,
    /// The names of those pools of the table that can be used.
    pub ready: Vec<String>,
    /// The others.
    pub failed: Vec<Failure>,
}

/// Why a pool can't be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The pool.
    pub name: String,
    /// A sentence.
    pub why: String,
}

/// The answer to a question for the status.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GuestStatus {
    /// The request's.
    pub id: u64,
    /// Of the front end.
    pub version: String,
    /// The machine's kernel.
    pub kernel: String,
    /// Is vshmem.ko loaded, and if not, is it known why?
    pub driver: DriverStatus,
    /// Its pools: those of the table, and further ones that it has.
    pub pools: Vec<GuestPool>,
}

/// Whether a machine has the driver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum DriverStatus {
    /// It is loaded, or nobody tried.
    Loaded(bool),
    /// Why it was not loaded.
    Failed(String),
}

/// A pool, as its machine sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestPool {
    /// What it is called.
    pub name: String,
    /// The PCI address of its device.
    pub address: String,
    /// The machine's place among the members, if it has joined.
    pub member: Option<u16>,
    /// `ready`, `gone` (there is no such device now), or why it can't be used.
    pub state: String,
}

/// The answer to what makes no sense.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Refusal {
    /// The request's.
    pub id: u64,
    /// A sentence.
    pub error: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_and_written() {
        let line = r#"{"id":7,"pools":[{"address":"0000:05:00.0","name":"work"}]}"#;
        let ask: Ask = serde_json::from_str(line).expect("a table");
        assert_eq!(serde_json::to_string(&ask).expect("plain data"), line);
        let ask: Ask = serde_json::from_str(r#"{"id":8,"status":{}}"#).expect("a question");
        assert!(ask.pools.is_none() && ask.status.is_some());
        assert!(
            serde_json::from_str::<Ask>(r#"{"pools":[]}"#).is_err(),
            "no id"
        );
    }

    #[test]
    fn the_driver_is_true_false_or_a_sentence() {
        let told = [
            DriverStatus::Loaded(true),
            DriverStatus::Loaded(false),
            DriverStatus::Failed("it is another kernel's".into()),
        ];
        let text = serde_json::to_string(&told).expect("plain data");
        assert_eq!(text, r#"[true,false,"it is another kernel's"]"#);
        let again: [DriverStatus; 3] = serde_json::from_str(&text).expect("the same");
        assert_eq!(again, told);
    }
}
