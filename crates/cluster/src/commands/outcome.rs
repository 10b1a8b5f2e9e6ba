//! What became of a command.

use crate::wire::ended::Ended;

/// How a task ended.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// The command ended.
    Ended(Ended),
    /// It never started, or its machine is lost: an exit code and why.
    Failed(u8, String),
}

impl Outcome {
    /// The exit code that stands for it.
    pub fn code(&self) -> u8 {
        match self {
            Outcome::Ended(ended) => ended.code(),
            Outcome::Failed(code, _) => *code,
        }
    }
}
