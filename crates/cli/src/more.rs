//! `vshmem run ... : ...`: several commands on one line, as with mpirun.

use crate::args::{MoreRun, Run};
use clap::Parser;
use std::ffi::{OsStr, OsString};

/// Splits the arguments of `vshmem run` at colons. A colon counts only before an option, so that commands may
/// have colons as arguments too.
pub fn split(arguments: impl Iterator<Item = OsString>) -> (Vec<OsString>, Vec<Run>) {
    let (first, further) = split_words(arguments.collect());
    (first, further.into_iter().map(|words| MoreRun::parse_from(words).run).collect())
}

fn split_words(words: Vec<OsString>) -> (Vec<OsString>, Vec<Vec<OsString>>) {
    if words.get(1).is_none_or(|word| word != "run") {
        return (words, vec![]);
    }
    let mut parts = vec![Vec::new()];
    let mut words = words.into_iter().peekable();
    while let Some(word) = words.next() {
        let option = |next: &OsString| next.as_encoded_bytes().starts_with(b"-");
        if word == OsStr::new(":") && words.peek().is_some_and(option) {
            parts.push(Vec::new());
        } else if let Some(part) = parts.last_mut() {
            part.push(word);
        }
    }
    let first = parts.remove(0);
    (first, parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(line: &str) -> (String, Vec<String>) {
        let words = line.split(' ').map(OsString::from).collect();
        let (first, further) = split_words(words);
        let text = |words: Vec<OsString>| words.join(OsStr::new(" ")).into_string().unwrap();
        (text(first), further.into_iter().map(text).collect())
    }

    #[test]
    fn commands_are_told_apart() {
        let (first, further) = split("vshmem run --vm vm0 -- a b : --vm vm1 -- c : -- d");
        assert_eq!(first, "vshmem run --vm vm0 -- a b");
        assert_eq!(further, ["--vm vm1 -- c", "-- d"]);
    }

    #[test]
    fn other_colons_are_left_alone() {
        assert_eq!(split("vshmem run -- sh : x").1.len(), 0);
        assert_eq!(split("vshmem run -- sh :").0, "vshmem run -- sh :");
        assert_eq!(split("vshmem exec vm0 -- a : -- b").1.len(), 0);
    }

    #[test]
    fn further_commands_are_read() {
        let words = ["--vm", "vm1", "-n", "2", "--", "ls", "-l"];
        let run = MoreRun::try_parse_from(words).map(|more| more.run);
        let run = run.unwrap_or_else(|e| panic!("{e}"));
        assert_eq!((run.vm[0].as_str(), run.processes), ("vm1", Some(2)));
        assert_eq!(run.line.command, ["ls", "-l"]);
    }
}
