//! The documents that commands print with `--json`.

use crate::output::print;
use serde::Serialize;
use vshmem_base::document::Document;
use vshmem_base::Result;

/// Prints a document.
pub fn print_document(body: impl Serialize) -> Result<()> {
    print(&Document::text(body))
}
