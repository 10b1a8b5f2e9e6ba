//! What is said on the control socket: a request a line, an answer a line, in JSON.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Longest line in bytes, of a request.
pub const LONGEST: usize = 64 << 10;

/// A request.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Request {
    /// Tell how everything is. The answer is a [`Status`].
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
    /// Call the machine that a process is by this name.
    Name {
        /// The process: its QEMU, or who connects for it.
        pid: u32,
        /// The name.
        name: String,
    },
    /// Tell metrics at an address, or if there is none, no longer.
    Metrics {
        /// A path, `IP:PORT`, a port of the loopback interface, or `socket`: one in the back end's directory.
        address: Option<String>,
    },
    /// Begin anew with the program as it is installed now. Machines don't notice.
    Restart {},
    /// End. Machines go on, but later ones can't join.
    Stop {},
}

/// How everything is.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    /// The back end's process.
    pub pid: u32,
    /// The keeper's.
    pub keeper: u32,
    /// When this back end began, in seconds since the epoch.
    pub since: u64,
    /// It ends with the last pool.
    pub transient: bool,
    /// Where metrics are told.
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
    /// Bytes.
    pub size: u64,
    /// Vectors of each peer.
    pub vectors: usize,
    /// Where machines connect.
    pub socket: String,
    /// How often the host was rung.
    pub rung: u64,
    /// Bytes of removed segments that were given back to the host since this back end began.
    pub given_back: u64,
    /// Since when it is not cleaned up, in seconds since the epoch: what lies in it led that astray again and again.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub quarantined: Option<u64>,
    /// Who is connected, without the host.
    pub peers: Vec<PeerStatus>,
    /// The pool's members.
    pub members: Vec<MemberStatus>,
}

/// A machine that is connected.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct PeerStatus {
    /// By which number it is rung.
    pub peer: u16,
    /// Its name.
    pub name: String,
    /// Its process.
    pub pid: u32,
    /// Since when, in seconds since the epoch.
    pub since: u64,
    /// It has not read yet all that there is to tell.
    pub behind: bool,
}

/// A member of the pool.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct MemberStatus {
    /// Its number.
    pub member: u16,
    /// Its name.
    pub name: String,
    /// It is not known to be dead.
    pub alive: bool,
    /// By which number it is rung.
    pub peer: Option<u16>,
    /// Since when, in seconds since the epoch.
    pub since: Option<u64>,
}

/// An answer to anything but `list`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Answer {
    /// What went wrong.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<String>,
    /// Where machines with the pool connect, or metrics are told.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub socket: Option<String>,
}
