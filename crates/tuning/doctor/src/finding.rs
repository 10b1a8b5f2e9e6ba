//! The finding of a check.

use crate::setting::Setting;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use std::fmt;

/// The class of a remedy, by what has to be started anew for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// No restart: it works at once.
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

/// The outcome of a check, in a word.
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

/// A piece of evidence: something that was read.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Evidence {
    /// Its source: a file, or a thing that has no file.
    pub of: String,
    /// The content.
    pub is: String,
}

/// A measurement.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Measurement {
    /// The quantity that was measured.
    pub what: String,
    /// Its value.
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

/// A change of a setting, which cures something.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
pub struct Change {
    /// The setting.
    #[serde(serialize_with = "as_text")]
    #[schemars(with = "String")]
    pub setting: Setting,
    /// Its value now; empty: nothing is set.
    pub from: String,
    /// The value that it is to have.
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

/// The verdict of a check.
#[derive(Debug)]
pub enum Verdict {
    /// Nothing is wrong, for this reason.
    Fine(String),
    /// It costs speed.
    Costs(Costs),
    /// It can't be told, for this reason.
    Unknown(String),
}

/// The costs of a bad state, and their remedy.
#[derive(Debug, Default)]
pub struct Costs {
    /// The state, in a sentence.
    pub why: String,
    /// An estimate of the costs.
    pub estimate: String,
    /// The measurements show that cost here.
    pub proven: bool,
    /// The changes that `--fix` makes; none if the remedy is the user's.
    pub changes: Vec<Change>,
    /// The remedy in this case, if it is another than the check's.
    pub remedy: Option<(Class, String)>,
}

impl Verdict {
    /// The verdict that nothing is wrong, with the reason.
    pub fn fine(why: impl Into<String>) -> Verdict {
        Verdict::Fine(why.into())
    }

    /// The verdict that it can't be told, with the reason.
    pub fn unknown(why: impl Into<String>) -> Verdict {
        Verdict::Unknown(why.into())
    }
}

/// A check's finding.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Finding {
    /// The check.
    pub id: &'static str,
    /// The good state, in a sentence.
    pub title: &'static str,
    /// The outcome.
    pub verdict: Outcome,
    /// The reason, in a sentence.
    pub why: String,
    /// Checks whose findings are the cause of this one; none: it is a root cause, or costs nothing.
    pub causes: Vec<&'static str>,
    /// The evidence that was read.
    pub evidence: Vec<Evidence>,
    /// The measurements that were made.
    pub measured: Vec<Measurement>,
    /// An estimate of the costs; null: nothing is known to be wrong.
    pub cost: Option<String>,
    /// The measurements show that cost here; null: nothing is known to be wrong.
    pub proven: Option<bool>,
    /// The remedy.
    pub remedy: String,
    /// The class of the remedy.
    pub class: Class,
    /// The risk of the remedy: costs, and things that may break.
    pub risk: &'static str,
    /// The source of what is said.
    pub source: &'static str,
    /// The changes that `--fix` makes.
    pub changes: Vec<Change>,
}
