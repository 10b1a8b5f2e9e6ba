//! The command `vshmem schema`: the JSON Schemas of documents that commands print with `--json`
//! (docs/json.md).

use crate::output::print;
use clap::ValueEnum;
use schemars::Schema;
use vshmem_base::{document, Result};

/// The commands that have `--json`.
#[derive(Clone, Copy, ValueEnum)]
pub enum Documents {
    /// vshmem agent --status
    Agent,
    /// vshmem check
    Check,
    /// vshmem devices
    Devices,
    /// vshmem doctor
    Doctor,
    /// vshmem doctor --daemon idle, each line
    DoctorDaemon,
    /// vshmem doctor --daemon idle --prove
    DoctorProof,
    /// vshmem explain
    Explain,
    /// vshmem grant, each line
    Grant,
    /// vshmem ipcs
    Ipcs,
    /// vshmem mpirun --explain
    Mpirun,
    /// vshmem pool ls
    PoolLs,
    /// vshmem ps
    Ps,
    /// vshmem revoke, each line
    Revoke,
    /// vshmem template ls
    TemplateLs,
    /// vshmem top, each line
    Top,
}

/// Prints the schema of a command's output.
pub fn schema(which: Documents) -> Result<u8> {
    let schema = schema_of(which);
    let text = serde_json::to_string_pretty(&schema).expect("it is plain data");
    print(&format!("{text}\n")).map(|()| 0)
}

fn schema_of(which: Documents) -> Schema {
    match which {
        Documents::Agent => document::schema::<crate::agent::Status>(),
        Documents::Check => document::schema::<crate::check::Shown<'_>>(),
        Documents::Devices => document::schema::<crate::devices::Report>(),
        Documents::Doctor => document::schema::<crate::doctor::Report<'_>>(),
        Documents::DoctorDaemon => document::schema::<vshmem_doctor::Status>(),
        Documents::DoctorProof => document::schema::<vshmem_doctor::Proof>(),
        Documents::Explain => document::schema::<crate::explain::Explained>(),
        Documents::Grant => document::schema::<crate::grants::Granted<'_>>(),
        Documents::Ipcs => document::schema::<crate::ipcs::All<'_>>(),
        Documents::Mpirun => document::schema::<crate::mpirun::explain::Explained>(),
        Documents::PoolLs => document::schema::<crate::pools::All<'_>>(),
        Documents::Ps => document::schema::<crate::machines::All<'_>>(),
        Documents::Revoke => document::schema::<crate::grants::Revoked<'_>>(),
        Documents::TemplateLs => document::schema::<crate::template::All>(),
        Documents::Top => document::schema::<crate::top::Line<'_>>(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::up;
    use serde_json::Value;
    use vshmem_base::document::VERSION;

    /// Each object's properties are told as far down as there are any. One alone is a case, which is told as
    /// a whole.
    fn check(value: &Value, place: &str) {
        match value {
            Value::Object(fields) => {
                if let Some(properties) = fields.get("properties").and_then(Value::as_object) {
                    assert_eq!(fields["additionalProperties"], false, "{place}");
                    let is_told = |one: &Value| one.get("description").is_some();
                    for (name, property) in properties {
                        let is_case = properties.len() == 1 && is_told(value);
                        assert!(is_case || is_told(property), "{place}: nothing is said of {name}");
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
        for which in Documents::value_variants() {
            let name = which.to_possible_value().unwrap().get_name().to_owned();
            let schema = schema_of(*which).to_value();
            assert_eq!(schema["properties"]["version"]["const"], VERSION, "{name}");
            check(&schema, &name);
            let file = format!("{}/../../docs/schemas/{name}.json", env!("CARGO_MANIFEST_DIR"));
            let written = std::fs::read_to_string(&file).unwrap_or_default();
            assert!(
                serde_json::from_str::<Value>(&written).is_ok_and(|written| written == schema),
                "what is printed has changed: see docs/json.md, and write {file} anew by vshmem schema {name}"
            );
        }
    }
    #[test]
    fn the_schema_of_a_description_is_written_down() {
        let schema = up::schema();
        let read: Value = serde_json::from_str(&schema).unwrap();
        check(&read, "cluster");
        let file = format!("{}/../../docs/schemas/cluster.json", env!("CARGO_MANIFEST_DIR"));
        let written = std::fs::read_to_string(&file).unwrap_or_default();
        assert!(written == schema, "write {file} anew by vshmem up --schema");
        let guide = include_str!("../../../docs/guide-cluster-file.md");
        let parts = read["$defs"].as_object().unwrap().values().chain([&read]);
        for key in parts.filter_map(|part| part["properties"].as_object()).flat_map(|all| all.keys()) {
            let told = guide.contains(&format!("`{key}`")) || guide.contains(&format!("[{key}"));
            assert!(told, "docs/guide-cluster-file.md does not tell of {key}");
        }
    }
}
