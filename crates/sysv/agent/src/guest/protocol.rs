//! The protocol between the host and a front end: each message is a line of JSON.

use serde::{Deserialize, Serialize};

/// The virtio-serial port that carries it.
pub const PORT: &str = "org.vshmem.agent";
/// Longest line in bytes, either way.
pub const MAX_LINE: usize = 64 << 10;

/// A request of the host: either `pools` or `status`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct GuestRequest {
    /// Any number; the response has it, too.
    pub id: u64,
    /// All pools that are granted to the machine while it runs: others are granted no longer.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pools: Option<Vec<GrantedPool>>,
    /// The status is requested.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub status: Option<Empty>,
}

/// `{}`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Empty {}

/// A pool that is granted.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GrantedPool {
    /// The PCI address of its device in the machine.
    pub address: String,
    /// Its name in the machine.
    pub name: String,
}

/// The response to a table of pools.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantResponse {
    /// The request's.
    pub id: u64,
    /// The names of those pools of the table that can be used.
    pub ready: Vec<String>,
    /// The other pools of the table.
    pub failed: Vec<Failure>,
}

/// A pool that can't be used, with the reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The pool's name.
    pub name: String,
    /// The reason, as a sentence.
    pub why: String,
}

/// The response to a request for the status.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GuestStatus {
    /// The request's.
    pub id: u64,
    /// The front end's version.
    pub version: String,
    /// The version of the machine's kernel.
    pub kernel: String,
    /// The state of the driver.
    pub driver: DriverStatus,
    /// The machine's pools: those of the table, and others that it has.
    pub pools: Vec<GuestPool>,
}

/// The state of a machine's driver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum DriverStatus {
    /// Whether it is loaded. False also means that loading it was not tried.
    Loaded(bool),
    /// It could not be loaded, for this reason.
    Failed(String),
}

/// A pool, as its machine sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestPool {
    /// Its name.
    pub name: String,
    /// The PCI address of its device.
    pub address: String,
    /// The machine's number in the member table, if it has joined.
    pub member: Option<u16>,
    /// `ready`, `gone` (there is no such device now), or why it can't be used.
    pub state: String,
}

/// The response to an invalid request.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ErrorResponse {
    /// The request's.
    pub id: u64,
    /// The error, as a sentence.
    pub error: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_and_written() {
        let line = r#"{"id":7,"pools":[{"address":"0000:05:00.0","name":"work"}]}"#;
        let request: GuestRequest = serde_json::from_str(line).expect("a table");
        assert_eq!(serde_json::to_string(&request).expect("plain data"), line);
        let request: GuestRequest = serde_json::from_str(r#"{"id":8,"status":{}}"#).expect("a request");
        assert!(request.pools.is_none() && request.status.is_some());
        assert!(serde_json::from_str::<GuestRequest>(r#"{"pools":[]}"#).is_err(), "no id");
    }

    #[test]
    fn the_driver_is_true_false_or_a_sentence() {
        let statuses = [
            DriverStatus::Loaded(true),
            DriverStatus::Loaded(false),
            DriverStatus::Failed("it is another kernel's".into()),
        ];
        let text = serde_json::to_string(&statuses).expect("plain data");
        assert_eq!(text, r#"[true,false,"it is another kernel's"]"#);
        let again: [DriverStatus; 3] = serde_json::from_str(&text).expect("the same");
        assert_eq!(again, statuses);
    }
}
