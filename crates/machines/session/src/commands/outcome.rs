//! The outcome of a command.

use crate::wire::ended::Ended;

/// The outcome of a command: how it ended, or why it was not started.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// It ran and ended.
    Ended(Ended),
    /// It was not started, or its machine was lost: exit code and reason.
    Failed(u8, String),
}

impl Outcome {
    /// The exit code for it.
    pub fn code(&self) -> u8 {
        match self {
            Outcome::Ended(ended) => ended.code(),
            Outcome::Failed(code, _) => *code,
        }
    }
}
