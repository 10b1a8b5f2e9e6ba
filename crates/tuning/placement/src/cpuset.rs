//! Sets of logical processors (hwloc: processing units, PUs), or of memory nodes, by the numbers that Linux
//! gives them.

use schemars::{json_schema, JsonSchema, Schema, SchemaGenerator};
use serde::de::{Deserializer, Error};
use serde::{Deserialize, Serialize, Serializer};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// The most numbers of a range: more than any system has processors.
const MAX_RANGE: u32 = 1 << 16;

/// A set of numbers. As text it is Linux's list format (`0-3,8`, cpuset(7)).
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct CpuSet(BTreeSet<u32>);

impl CpuSet {
    /// The smallest number.
    pub fn first(&self) -> Option<u32> {
        self.0.first().copied()
    }

    /// The count of its numbers.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a number is in it.
    pub fn contains(&self, number: u32) -> bool {
        self.0.contains(&number)
    }

    /// Whether all of its numbers are in another one.
    pub fn is_subset(&self, other: &CpuSet) -> bool {
        self.0.is_subset(&other.0)
    }

    /// All numbers, in order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().copied()
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<T: IntoIterator<Item = u32>>(numbers: T) -> CpuSet {
        CpuSet(numbers.into_iter().collect())
    }
}

impl Extend<u32> for CpuSet {
    fn extend<T: IntoIterator<Item = u32>>(&mut self, numbers: T) {
        self.0.extend(numbers);
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.iter().peekable();
        let mut comma = "";
        while let Some(first) = rest.next() {
            let mut last = first;
            while let Some(next) = rest.next_if(|next| *next == last + 1) {
                last = next;
            }
            match first == last {
                true => write!(f, "{comma}{first}")?,
                false => write!(f, "{comma}{first}-{last}")?,
            }
            comma = ",";
        }
        Ok(())
    }
}

impl Serialize for CpuSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl FromStr for CpuSet {
    type Err = String;

    fn from_str(text: &str) -> Result<CpuSet, String> {
        let mut set = CpuSet::default();
        let text = text.trim();
        for part in text.split(',').filter(|_| !text.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = match (first.parse::<u32>(), last.parse::<u32>()) {
                (Ok(first), Ok(last)) if first <= last && last - first < MAX_RANGE => (first, last),
                _ => return Err(format!("{text:?} is no list of numbers, such as 0-3,8")),
            };
            set.extend(first..=last);
        }
        Ok(set)
    }
}

impl<'de> Deserialize<'de> for CpuSet {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<CpuSet, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

impl JsonSchema for CpuSet {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "CpuSet".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^([0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*)?$" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_written_as_linux_does() {
        let text = |numbers: &[u32]| numbers.iter().copied().collect::<CpuSet>().to_string();
        assert_eq!(text(&[]), "");
        assert_eq!(text(&[3]), "3");
        assert_eq!(text(&[8, 0, 1, 2, 3]), "0-3,8");
        assert_eq!(text(&[1, 0, 5, 7, 6]), "0-1,5-7");
    }

    #[test]
    fn lists_of_the_kernel_are_read() {
        let read = |text: &str| text.parse().map(|set: CpuSet| set.to_string());
        for text in ["", "3", "0-3,8", "0-1,5-7"] {
            assert_eq!(read(text).as_deref(), Ok(text));
        }
        assert_eq!(read("0-2,8\n").as_deref(), Ok("0-2,8"));
        for text in ["x-y", "5-4", ",", "0-4294967295", "1,", "-1", "99999999999"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
