//! How a command ended.

use crate::wire::ended::Ended;

/// How a command ended.
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
