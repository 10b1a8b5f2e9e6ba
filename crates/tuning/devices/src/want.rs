//! Wishes for functions, as descriptions of clusters have them.

use crate::address::Address;
use crate::function::Function;
use crate::kind;
use schemars::{json_schema, JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

/// The most functions that one wish can be for.
const MOST_FUNCTIONS: u32 = 64;

/// A wish for a function, or for several of one sort: `0000:01:00.0`, `vf of 0000:01:00.0`, `10de:20b5`,
/// `nvme`, and each with a count before it, such as `2 x nvme`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Want {
    /// The functions that will do.
    pub which: Which,
    /// The number of functions.
    pub count: u32,
}

/// The condition of a wish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Which {
    /// The function at this address.
    At(Address),
    /// A virtual function of this one.
    VirtualOf(Address),
    /// Any of this vendor and device.
    Id(u16, u16),
    /// Any of this kind that is no virtual one.
    Kind(String),
}

impl Which {
    /// True if a function will do.
    pub fn is(&self, function: &Function) -> bool {
        match self {
            Which::At(address) => function.address == *address,
            Which::VirtualOf(physical) => function.physical == Some(*physical),
            Which::Id(vendor, device) => (function.id.vendor, function.id.device) == (*vendor, *device),
            Which::Kind(name) => function.physical.is_none() && kind::is(function.class, name),
        }
    }
}

impl fmt::Display for Which {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Which::At(address) => write!(f, "{address}"),
            Which::VirtualOf(physical) => write!(f, "vf of {physical}"),
            Which::Id(vendor, device) => write!(f, "{vendor:04x}:{device:04x}"),
            Which::Kind(name) => f.write_str(name),
        }
    }
}

impl fmt::Display for Want {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.count {
            1 => write!(f, "{}", self.which),
            count => write!(f, "{count} x {}", self.which),
        }
    }
}

impl FromStr for Want {
    type Err = String;

    fn from_str(text: &str) -> Result<Want, String> {
        let (count, rest) = match text.split_once(" x ") {
            Some((count, rest)) => (count.trim(), rest),
            None => ("1", text),
        };
        let in_range = |count: &u32| (1..=MOST_FUNCTIONS).contains(count);
        let count = count.parse().ok().filter(in_range);
        let count =
            count.ok_or_else(|| format!("{text:?} does not begin with a count of 1 to {MOST_FUNCTIONS}"))?;
        let which = which(rest.trim()).ok_or_else(|| {
            let kinds = kind::names().collect::<Vec<_>>().join(", ");
            format!(
                "{text:?} is no device: it is an address (0000:01:00.0), \"vf of ADDRESS\", a vendor and device \
                 (10de:20b5), or one of {kinds}"
            )
        })?;
        match (&which, count) {
            (Which::At(address), 2..) => Err(format!("there is one function at {address}, not {count}")),
            _ => Ok(Want { which, count }),
        }
    }
}

fn which(text: &str) -> Option<Which> {
    if let Some(physical) = text.strip_prefix("vf of ") {
        return physical.trim().parse().ok().map(Which::VirtualOf);
    }
    if let Ok(address) = text.parse() {
        return Some(Which::At(address));
    }
    if kind::names().any(|name| name == text) {
        return Some(Which::Kind(text.into()));
    }
    let (vendor, device) = text.split_once(':')?;
    let number = |text: &str| (text.len() == 4).then(|| u16::from_str_radix(text, 16).ok()).flatten();
    Some(Which::Id(number(vendor)?, number(device)?))
}

impl TryFrom<String> for Want {
    type Error = String;

    fn try_from(text: String) -> Result<Want, String> {
        text.parse()
    }
}

impl From<Want> for String {
    fn from(want: Want) -> String {
        want.to_string()
    }
}

impl JsonSchema for Want {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Want".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "examples": ["0000:01:00.0", "vf of 0000:01:00.0", "10de:20b5", "nvme", "2 x nvme"],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wishes_are_read_and_shown() {
        for (text, shown) in [
            ("01:00.0", "0000:01:00.0"),
            ("vf of 01:00.0", "vf of 0000:01:00.0"),
            ("2 x vf of 0000:01:00.0", "2 x vf of 0000:01:00.0"),
            ("10DE:20b5", "10de:20b5"),
            ("1 x nvme", "nvme"),
            ("8 x gpu", "8 x gpu"),
        ] {
            assert_eq!(text.parse::<Want>().unwrap().to_string(), shown);
        }
        for (text, word) in [
            ("", "no device"),
            ("disk", "nvme, "),
            ("0 x nvme", "1 to 64"),
            ("x nvme", "no device"),
            ("many x nvme", "count"),
            ("2 x 01:00.0", "one function"),
            ("vf of nvme", "no device"),
            ("10de:20b", "no device"),
        ] {
            let why = text.parse::<Want>().unwrap_err();
            assert!(why.contains(word), "{text}: {why}");
        }
    }
}
