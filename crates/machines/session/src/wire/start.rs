//! The request to start a command. Strings are bytes on Linux, and so lists of numbers in JSON.

use serde::{Deserialize, Serialize};
use std::ffi::OsString;

/// Size of a terminal, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    /// Lines.
    pub rows: u16,
    /// Columns.
    pub columns: u16,
}

/// A request to start a command.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Start {
    /// The program and its arguments. With `login`, a list of shells, of which the first that exists is
    /// started.
    pub argv: Vec<OsString>,
    /// The whole environment.
    pub env: Vec<(OsString, OsString)>,
    /// The directory to start in.
    pub cwd: OsString,
    /// Start in `/` if the machine does not have `cwd`.
    pub cwd_optional: bool,
    /// Standard input follows in frames; otherwise it is empty.
    pub stdin: bool,
    /// A login shell.
    pub login: bool,
    /// It gets a terminal of this size for input and output.
    pub terminal: Option<Size>,
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// It has the agent's user, not the one given here, and `env` is added to the agent's environment.
    pub inherits: bool,
    /// Its background processes end with the session.
    pub ends_with_session: bool,
    /// It gets a directory for temporary files, in TMPDIR, which is removed when it has ended.
    pub scratch: bool,
    /// Paths of the host that the command needs, in directories where the machine has its own files.
    pub needs: Vec<OsString>,
}
