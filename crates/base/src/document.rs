//! The documents that commands print with `--json`, and their schemas (docs/json.md).

use schemars::generate::SchemaSettings;
use schemars::transform::{transform_subschemas, Transform};
use schemars::{JsonSchema, Schema};
use serde::Serialize;

/// The version of all shapes. It changes when readers of the earlier one would fail; added fields don't
/// change it.
pub const VERSION: u32 = 1;

/// A document that a command prints with `--json`. Readers ignore fields that they do not know.
#[derive(Serialize, JsonSchema)]
pub struct Document<T> {
    /// The version of this document's shape.
    #[schemars(extend("const" = VERSION))]
    version: u32,
    #[serde(flatten)]
    body: T,
}

impl<T: Serialize> Document<T> {
    /// A document, as text of several lines.
    pub fn text(body: T) -> String {
        serde_json::to_string_pretty(&Document { version: VERSION, body }).expect("it is plain data") + "\n"
    }

    /// A document in one line, of several.
    pub fn line(body: T) -> String {
        serde_json::to_string(&Document { version: VERSION, body }).expect("it is plain data") + "\n"
    }
}

/// The schema of a document with this body.
pub fn schema<T: JsonSchema>() -> Schema {
    let settings = SchemaSettings::draft2020_12().for_serialize().with_transform(NothingElse);
    let mut schema = settings.into_generator().into_root_schema_for::<Document<T>>();
    // The name of an internal type means nothing to readers.
    schema.remove("title");
    schema
}

/// No object has a field that the schema does not describe.
#[derive(Clone)]
struct NothingElse;

impl Transform for NothingElse {
    fn transform(&mut self, schema: &mut Schema) {
        transform_subschemas(self, schema);
        if schema.get("properties").is_some() {
            schema.insert("additionalProperties".into(), false.into());
        }
    }
}
