//! What `--json` prints: documents, each with the version of its shape, and the schemas of these shapes, which docs/json.md explains.

use crate::{args, print};
use schemars::generate::SchemaSettings;
use schemars::transform::{transform_subschemas, Transform};
use schemars::{JsonSchema, Schema};
use serde::Serialize;
use vshmem_cluster::Result;

/// Of all shapes. It changes when what could be read so far can't be any more; fields that are added change nothing.
const VERSION: u32 = 1;

/// What a command prints with `--json`. Who reads it ignores fields that it does not know.
#[derive(Serialize, JsonSchema)]
struct Document<T> {
    /// The version of what is told here.
    #[schemars(extend("const" = VERSION))]
    version: u32,
    #[serde(flatten)]
    body: T,
}

impl<T> Document<T> {
    fn of(body: T) -> Document<T> {
        Document {
            version: VERSION,
            body,
        }
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

/// Prints the schema of what a command prints.
pub fn schema(which: args::Documents) -> Result<u8> {
    let schema = schema_of(which);
    let text = serde_json::to_string_pretty(&schema).expect("it is plain data");
    print(&format!("{text}\n")).map(|()| 0)
}

fn schema_of(which: args::Documents) -> Schema {
    use args::Documents;
    match which {
        Documents::Agent => shape::<vshmem_agent::Status>(),
        Documents::Check => shape::<crate::check::Shown<'_>>(),
        Documents::Explain => shape::<crate::explain::Explained>(),
        Documents::Grant => shape::<crate::grants::Granted<'_>>(),
        Documents::Ipcs => shape::<crate::ipcs::All<'_>>(),
        Documents::PoolLs => shape::<crate::pools::All<'_>>(),
        Documents::Ps => shape::<crate::machines::All<'_>>(),
        Documents::Revoke => shape::<crate::grants::Revoked<'_>>(),
        Documents::Top => shape::<crate::top::Line<'_>>(),
    }
}

fn shape<T: JsonSchema>() -> Schema {
    let settings = SchemaSettings::draft2020_12()
        .for_serialize()
        .with_transform(NothingElse);
    let mut schema = settings
        .into_generator()
        .into_root_schema_for::<Document<T>>();
    // The name of a type of ours says nothing to others.
    schema.remove("title");
    schema
}

/// No object has a field that is not told.
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

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;
    use serde_json::Value;

    /// Each object's properties are told as far down as there are any. One alone is a case, which is told as a whole.
    fn check(value: &Value, place: &str) {
        match value {
            Value::Object(fields) => {
                if let Some(properties) = fields.get("properties").and_then(Value::as_object) {
                    assert_eq!(fields["additionalProperties"], false, "{place}");
                    let is_told = |one: &Value| one.get("description").is_some();
                    for (name, property) in properties {
                        let is_case = properties.len() == 1 && is_told(value);
                        assert!(
                            is_case || is_told(property),
                            "{place}: nothing is said of {name}"
                        );
                    }
                }
                for (name, field) in fields {
                    check(field, &format!("{place}/{name}"));
                }
            }
            Value::Array(items) => items.iter().for_each(|item| check(item, place)),
            _ => (),
        }
    }

    #[test]
    fn shapes_say_all_and_are_written_down() {
        for which in args::Documents::value_variants() {
            let name = which.to_possible_value().unwrap().get_name().to_owned();
            let schema = schema_of(*which).to_value();
            assert_eq!(schema["properties"]["version"]["const"], VERSION, "{name}");
            check(&schema, &name);
            let file = format!(
                "{}/../../docs/schemas/{name}.json",
                env!("CARGO_MANIFEST_DIR")
            );
            let written = std::fs::read_to_string(&file).unwrap_or_default();
            assert!(
                serde_json::from_str::<Value>(&written).is_ok_and(|written| written == schema),
                "what is printed has changed: see docs/json.md, and write {file} anew by vshmem schema {name}"
            );
        }
    }
}
