//! The protocol of the control socket: requests and responses are lines of JSON.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Longest request in bytes.
pub const MAX_REQUEST: usize = 64 << 10;

/// A request.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Request {
    /// Report the status. The response is a [`Status`].
    List {},
    /// Serve a pool, if it is not served yet.
    Serve {
        /// Its name or path.
        pool: String,
        /// Vectors of each peer.
        vectors: usize,
    },
    /// Serve a pool no longer.
    Drop {
        /// Its name.
        pool: String,
    },
    /// Set the name of the machine that a process connects.
    Name {
        /// The process, mostly a hypervisor.
        pid: u32,
        /// The name.
        name: String,
    },
    /// Serve metrics at an address, or, without one, no longer.
    Metrics {
        /// A path, `IP:PORT`, a port of the loopback interface, or `socket`: one in the back end's directory.
        address: Option<String>,
    },
    /// Execute the program again as it is installed now. Machines are not affected.
    Restart {},
    /// End. Machines go on, but further ones can't connect.
    Stop {},
}

/// The status of the back end.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    /// The back end's pid.
    pub pid: u32,
    /// The keeper's pid.
    pub keeper: u32,
    /// The time at which this back end started, in seconds since the epoch.
    pub since: u64,
    /// Whether it ends with its last pool.
    pub transient: bool,
    /// The address at which metrics are served.
    pub metrics: Option<String>,
    /// The pools that are served.
    pub pools: Vec<PoolStatus>,
}

/// A pool that is served.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct PoolStatus {
    /// Its name.
    pub name: String,
    /// Its file.
    pub path: String,
    /// Its size in bytes.
    pub size: u64,
    /// Vectors of each peer.
    pub vectors: usize,
    /// The socket to which machines connect.
    pub socket: String,
    /// The number of times that the host's doorbell was rung.
    pub rung: u64,
    /// Bytes of removed segments that were given back to the host since this back end started.
    pub given_back: u64,
    /// The time since which it is in quarantine, in seconds since the epoch.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub quarantined: Option<u64>,
    /// The machines that are connected.
    pub peers: Vec<PeerStatus>,
    /// The pool's members.
    pub members: Vec<MemberStatus>,
}

/// A machine that is connected.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct PeerStatus {
    /// Its peer id, which rings its doorbell.
    pub peer: u16,
    /// Its name.
    pub name: String,
    /// The pid of its process.
    pub pid: u32,
    /// The time at which it connected, in seconds since the epoch.
    pub since: u64,
    /// Whether it has messages yet to read.
    pub behind: bool,
}

/// A member of the pool.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct MemberStatus {
    /// Its number.
    pub member: u16,
    /// Its name.
    pub name: String,
    /// Whether it is alive, as far as is known.
    pub alive: bool,
    /// Its peer id, which rings its doorbell.
    pub peer: Option<u16>,
    /// The time at which it connected, in seconds since the epoch.
    pub since: Option<u64>,
}

/// The response to any request but `list`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Response {
    /// The error, if the request failed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<String>,
    /// The socket to which machines connect, or the address at which metrics are served.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub socket: Option<String>,
}
