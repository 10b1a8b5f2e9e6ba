//! The documents that `--json` prints, with the version of their shape (docs/json.md).

use crate::output::print;
use schemars::JsonSchema;
use serde::Serialize;
use vshmem_cluster::Result;

/// The version of all shapes. It changes when readers of the earlier one would fail; added fields don't
/// change it.
pub const VERSION: u32 = 1;

/// What a command prints with `--json`. Readers ignore fields that they do not know.
#[derive(Serialize, JsonSchema)]
pub struct Document<T> {
    /// The version of this document's shape.
    #[schemars(extend("const" = VERSION))]
    version: u32,
    #[serde(flatten)]
    body: T,
}

impl<T> Document<T> {
    fn of(body: T) -> Document<T> {
        Document { version: VERSION, body }
    }
}

/// Prints a document.
pub fn print_document(body: impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(&Document::of(body)).expect("it is plain data");
    print(&format!("{text}\n"))
}

/// A document in one line, of several.
pub fn line(body: impl Serialize) -> String {
    let text = serde_json::to_string(&Document::of(body)).expect("it is plain data");
    format!("{text}\n")
}
