//! What a check finds.

use crate::setting::Setting;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use std::fmt;

/// What a remedy takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Nothing: it works at once.
    Live,
    /// The machine has to be started anew.
    MachineRestart,
    /// The host has to be started anew.
    HostReboot,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Class::Live => "live",
            Class::MachineRestart => "needs a restart of the machine",
            Class::HostReboot => "needs a reboot of the host",
        })
    }
}

/// What was found, in a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// It costs speed.
    Costs,
    /// It can't be told.
    Unknown,
    /// Nothing is wrong, or the check does not apply here.
    Fine,
}

/// Something that was read.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Evidence {
    /// Where: a file, or what it is of.
    pub of: String,
    /// What was there.
    pub is: String,
}

/// Something that was measured.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Measurement {
    /// What it is.
    pub what: String,
    /// How much.
    pub value: f64,
    /// The unit of the value.
    pub unit: &'static str,
}

impl fmt::Display for Measurement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places = usize::from(self.value < 10.0);
        write!(f, "{}: {:.places$} {}", self.what, self.value, self.unit)
    }
}

/// A change that cures something.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
pub struct Change {
    /// What is changed.
    #[serde(serialize_with = "as_text")]
    #[schemars(with = "String")]
    pub setting: Setting,
    /// What is there; empty: nothing is set.
    pub from: String,
    /// What is to be there.
    pub to: String,
}

fn as_text<S: Serializer>(setting: &Setting, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(setting)
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |value: &str| if value.is_empty() { "unset".into() } else { value.to_owned() };
        write!(f, "{}: {} becomes {}", self.setting, shown(&self.from), shown(&self.to))
    }
}

/// What a check says.
#[derive(Debug)]
pub enum Verdict {
    /// Nothing is wrong; why.
    Fine(String),
    /// It costs speed.
    Costs(Costs),
    /// It can't be told; why.
    Unknown(String),
}

/// What is wrong.
#[derive(Debug, Default)]
pub struct Costs {
    /// A sentence.
    pub why: String,
    /// What it costs.
    pub estimate: String,
    /// The measurements show that cost here.
    pub proven: bool,
    /// What `--fix` changes; nothing if the remedy is the user's.
    pub changes: Vec<Change>,
    /// The remedy in this case, if it is another than the check's.
    pub remedy: Option<(Class, String)>,
}

impl Verdict {
    /// Nothing is wrong.
    pub fn fine(why: impl Into<String>) -> Verdict {
        Verdict::Fine(why.into())
    }

    /// It can't be told.
    pub fn unknown(why: impl Into<String>) -> Verdict {
        Verdict::Unknown(why.into())
    }
}

/// All that is known of a check's subject.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Finding {
    /// The check.
    pub id: &'static str,
    /// What it is about.
    pub title: &'static str,
    /// What was found.
    pub verdict: Outcome,
    /// Why, in a sentence.
    pub why: String,
    /// Checks whose findings are the cause of this one; none: it is a root cause, or costs nothing.
    pub causes: Vec<&'static str>,
    /// What was read.
    pub evidence: Vec<Evidence>,
    /// What was measured.
    pub measured: Vec<Measurement>,
    /// What it costs; null: nothing is known to be wrong.
    pub cost: Option<String>,
    /// The measurements show that cost here; null: nothing is known to be wrong.
    pub proven: Option<bool>,
    /// The remedy.
    pub remedy: String,
    /// What the remedy takes.
    pub class: Class,
    /// What the remedy may cost or break.
    pub risk: &'static str,
    /// Where this is known from.
    pub source: &'static str,
    /// What `--fix` changes.
    pub changes: Vec<Change>,
}
