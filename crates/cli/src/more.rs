//! Further commands of `vshmem run ... : ...`, on one line as with mpirun.

use crate::run::{MoreRun, Run};
use clap::error::Result;
use clap::parser::ValueSource;
use clap::{CommandFactory, FromArgMatches};
use std::ffi::{OsStr, OsString};

/// Splits the arguments of `vshmem run` at colons. A colon counts only before an option, so that commands may
/// have colons as arguments too.
pub fn split(arguments: impl Iterator<Item = OsString>) -> (Vec<OsString>, Vec<More>) {
    let (first, further) = split_words(arguments.collect());
    (first, further.into_iter().map(|words| read(words).unwrap_or_else(|error| error.exit())).collect())
}

/// A further command.
pub struct More {
    run: Run,
    names_cluster: bool,
}

/// The further commands, in the first one's cluster unless they name another.
pub fn after(first: &Run, further: Vec<More>) -> Vec<Run> {
    let run = |More { mut run, names_cluster }| {
        if !names_cluster {
            run.cluster = first.cluster.clone();
        }
        run
    };
    further.into_iter().map(run).collect()
}

fn read(words: Vec<OsString>) -> Result<More> {
    let matches = MoreRun::command().try_get_matches_from(words)?;
    let names_cluster = matches.value_source("cluster") == Some(ValueSource::CommandLine);
    Ok(More { run: MoreRun::from_arg_matches(&matches)?.run, names_cluster })
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

    fn more(words: &[&str]) -> More {
        let words = words.iter().map(OsString::from).collect();
        read(words).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn further_commands_have_the_cluster_of_the_first() {
        let first = more(&["-c", "work", "--", "a"]).run;
        let further =
            after(&first, vec![more(&["--vm", "vm1", "--", "b"]), more(&["-c", "other", "--", "c"])]);
        let clusters: Vec<&str> = further.iter().map(|run| run.cluster.cluster.as_str()).collect();
        assert_eq!(clusters, ["work", "other"]);
    }

    #[test]
    fn further_commands_are_read() {
        let run = more(&["--vm", "vm1", "-n", "2", "--", "ls", "-l"]).run;
        assert_eq!((run.vm[0].as_str(), run.processes), ("vm1", Some(2)));
        assert_eq!(run.line.command, ["ls", "-l"]);
    }
}
