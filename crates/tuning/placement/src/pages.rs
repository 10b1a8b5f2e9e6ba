//! Kinds of pages that memory can be in, as they are asked for and as they are given.

use super::rules::Insist;
use schemars::{json_schema, JsonSchema, Schema, SchemaGenerator};
use serde::de::{Deserializer, Error, Unexpected, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;
use vshmem_base::size;

/// The pages that memory is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Pages {
    /// Pages of 4 KiB, and no others.
    #[serde(rename = "small")]
    Small,
    /// Pages of 2 MiB that the kernel puts together where it finds the room (transparent huge pages).
    #[serde(rename = "transparent")]
    Transparent,
    /// Pages of 2 MiB that the host has reserved (hugetlb).
    #[serde(rename = "2M")]
    TwoMib,
    /// Pages of 1 GiB that the host has reserved (hugetlb).
    #[serde(rename = "1G")]
    OneGib,
}

impl Pages {
    /// All of them, by their names.
    pub const ALL: [(&'static str, Pages); 4] = [
        ("small", Pages::Small),
        ("transparent", Pages::Transparent),
        ("2M", Pages::TwoMib),
        ("1G", Pages::OneGib),
    ];

    /// The pages of this name.
    pub fn named(name: &str) -> Option<Pages> {
        Pages::ALL.into_iter().find(|(known, _)| *known == name).map(|(_, pages)| pages)
    }

    /// The size in bytes of those that a host reserves; `None` of others, which any free memory may become.
    pub fn reserved(self) -> Option<u64> {
        match self {
            Pages::Small | Pages::Transparent => None,
            Pages::TwoMib => Some(2 << 20),
            Pages::OneGib => Some(1 << 30),
        }
    }

    /// The pages that are taken where these can't be had.
    pub fn next_best(self) -> Option<Pages> {
        match self {
            Pages::Small => None,
            Pages::Transparent => Some(Pages::Small),
            Pages::TwoMib => Some(Pages::Transparent),
            Pages::OneGib => Some(Pages::TwoMib),
        }
    }
}

impl fmt::Display for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Pages::Small => "small pages",
            Pages::Transparent => "transparent huge pages",
            Pages::TwoMib => "pages of 2M",
            Pages::OneGib => "pages of 1G",
        })
    }
}

/// The rules by which pages are taken, of whatever kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PageRules {
    /// The consequence if there are none.
    pub insist: Insist,
    /// All memory is taken before a machine boots, and before machines get a pool.
    pub prealloc: bool,
    /// Threads that do so; 0: as many as there are cores for it.
    pub threads: u32,
}

impl fmt::Display for PageRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.insist {
            Insist::Strict => "strict",
            Insist::Preferred => "preferred",
        })?;
        match (self.prealloc, self.threads) {
            (false, 0) => Ok(()),
            (false, threads) => write!(f, ", by {threads} threads"),
            (true, 0) => f.write_str(", taken ahead of time"),
            (true, threads) => write!(f, ", taken ahead of time by {threads} threads"),
        }
    }
}

/// The memory nodes of the host that a pool's memory comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolNodes {
    /// The one of this number.
    Node(u32),
    /// All by turns, page by page.
    Interleave,
}

const INTERLEAVE: &str = "interleave";

impl fmt::Display for PoolNodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PoolNodes::Node(number) => write!(f, "node {number}"),
            PoolNodes::Interleave => f.write_str("all nodes by turns"),
        }
    }
}

impl std::str::FromStr for PoolNodes {
    type Err = String;

    fn from_str(text: &str) -> Result<PoolNodes, String> {
        match text {
            INTERLEAVE => Ok(PoolNodes::Interleave),
            number => number
                .parse()
                .map(PoolNodes::Node)
                .map_err(|_| format!("{text:?} is neither the number of a memory node nor \"{INTERLEAVE}\"")),
        }
    }
}

impl Serialize for PoolNodes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            PoolNodes::Node(number) => serializer.serialize_u32(*number),
            PoolNodes::Interleave => serializer.serialize_str(INTERLEAVE),
        }
    }
}

struct ReadNodes;

impl Visitor<'_> for ReadNodes {
    type Value = PoolNodes;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the number of a memory node, or {INTERLEAVE:?}")
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<PoolNodes, E> {
        let small = u32::try_from(number).map_err(|_| E::invalid_value(Unexpected::Signed(number), &self));
        small.map(PoolNodes::Node)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<PoolNodes, E> {
        let small = u32::try_from(number).map_err(|_| E::invalid_value(Unexpected::Unsigned(number), &self));
        small.map(PoolNodes::Node)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<PoolNodes, E> {
        match text {
            INTERLEAVE => Ok(PoolNodes::Interleave),
            other => Err(E::invalid_value(Unexpected::Str(other), &self)),
        }
    }
}

impl<'de> Deserialize<'de> for PoolNodes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<PoolNodes, D::Error> {
        from.deserialize_any(ReadNodes)
    }
}

impl JsonSchema for PoolNodes {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "PoolNodes".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [
            { "type": "integer", "minimum": 0, "maximum": u32::MAX },
            { "const": INTERLEAVE },
        ]})
    }
}

/// Memory that was taken ahead of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Populated {
    /// Bytes that were taken.
    pub bytes: u64,
    /// Milliseconds that it took.
    pub milliseconds: u64,
    /// Threads that did it.
    pub threads: u32,
}

impl fmt::Display for Populated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Populated { bytes, milliseconds, threads } = *self;
        let (seconds, plural) = (milliseconds as f64 / 1000.0, if threads == 1 { "" } else { "s" });
        let rate = bytes as f64 / (1u64 << 30) as f64 / seconds.max(0.001);
        write!(f, "{} in {seconds:.2} s by {threads} thread{plural}, {rate:.1} GiB/s", size::show(bytes))
    }
}

/// The pages of something: what was asked for, what it was given, and how that went.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Given {
    /// The pages that were asked for; null: whatever the kernel gives.
    pub wanted: Option<Pages>,
    /// The pages that it was given.
    pub given: Option<Pages>,
    /// The reasons why that is not what was asked for, and the remedies.
    pub fallbacks: Vec<String>,
    /// The memory that was taken ahead of time; null: none was.
    pub populated: Option<Populated>,
}

impl Given {
    /// The size in bytes of the host's reserved pages that it was given, if it was.
    pub fn reserved(&self) -> Option<u64> {
        self.given.and_then(Pages::reserved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_have_the_names_that_files_have_for_them() {
        for (name, pages) in Pages::ALL {
            assert_eq!(serde_json::to_string(&pages).unwrap(), format!("{name:?}"));
            assert_eq!(Pages::named(name), Some(pages));
        }
    }

    #[test]
    fn every_kind_falls_back_to_small_ones() {
        for (_, pages) in Pages::ALL {
            let chain: Vec<_> = std::iter::successors(Some(pages), |pages| pages.next_best()).collect();
            assert_eq!(chain.last(), Some(&Pages::Small), "{pages:?}");
        }
    }

    #[test]
    fn nodes_are_numbers_or_all() {
        for (text, nodes) in [("3", PoolNodes::Node(3)), ("\"interleave\"", PoolNodes::Interleave)] {
            assert_eq!(serde_json::from_str::<PoolNodes>(text).unwrap(), nodes);
            assert_eq!(serde_json::to_string(&nodes).unwrap(), text);
            assert_eq!(text.trim_matches('"').parse(), Ok(nodes));
        }
        for text in ["-1", "\"all\"", "4294967296", "1.5"] {
            assert!(serde_json::from_str::<PoolNodes>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_rate_is_told() {
        let half = Populated { bytes: 1 << 30, milliseconds: 500, threads: 2 };
        assert_eq!(half.to_string(), "1G in 0.50 s by 2 threads, 2.0 GiB/s");
    }
}
