//! Printing what commands say with `--json`.

use crate::output::print;
use serde::Serialize;
use vshmem_cluster::document::Document;
use vshmem_cluster::Result;

/// Prints a document.
pub fn print_document(body: impl Serialize) -> Result<()> {
    print(&Document::text(body))
}
