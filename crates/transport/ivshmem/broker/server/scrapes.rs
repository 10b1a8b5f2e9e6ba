//! The endpoint for metrics, and what was last served there.

use crate::http::Endpoint;
use std::time::Instant;

/// The endpoint, if there is one, and the last metrics.
#[derive(Default)]
pub struct Scrapes {
    /// Where it listens.
    pub endpoint: Option<Endpoint>,
    /// When metrics were collected last, and their text.
    pub last: Option<(Instant, String)>,
}
