//! What `--json` prints: documents, each with the version of its shape, which docs/json.md explains.

use crate::output::print;
use schemars::JsonSchema;
use serde::Serialize;
use vshmem_cluster::Result;

/// Of all shapes. It changes when what could be read so far can't be any more; fields that are added change
/// nothing.
pub const VERSION: u32 = 1;

/// What a command prints with `--json`. Who reads it ignores fields that it does not know.
#[derive(Serialize, JsonSchema)]
pub struct Document<T> {
    /// The version of what is told here.
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
