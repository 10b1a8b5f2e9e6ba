//! Levels of the log.

/// A level: messages of this one and of those before it are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// No message.
    Off,
    /// Calls that fail for a reason that is Vshmem's.
    Error,
    /// Calls that fail otherwise than programs expect in their course.
    Warn,
    /// The loading of the library, and the pools that are opened.
    Info,
    /// Each `*get`, and each call that fails.
    Debug,
}

impl Level {
    const ALL: [Level; 5] = [Level::Off, Level::Error, Level::Warn, Level::Info, Level::Debug];

    /// The level that a word stands for.
    pub fn from_text(text: &[u8]) -> Option<Level> {
        Level::ALL.into_iter().find(|level| level.word().as_bytes() == text)
    }

    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Level::Off => "off",
            Level::Error => "error",
            Level::Warn => "warn",
            Level::Info => "info",
            Level::Debug => "debug",
        }
    }
}
