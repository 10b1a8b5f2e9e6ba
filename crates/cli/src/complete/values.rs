//! Candidates for values: names of clusters, machines and pools, programs and files. Completion must be fast
//! and change nothing, so names are only looked up: no pool is opened, and no machine is asked.

use super::words::words_before;
use crate::program::programs;
use clap::builder::StyledStr;
use clap_complete::engine::{CompletionCandidate, PathCompleter, ValueCompleter};
use clap_complete::{ArgValueCandidates, ArgValueCompleter};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use vshmem_cluster::host::names;
use vshmem_cluster::images::table::Table;
use vshmem_hypervisor::template::store::Store;
use vshmem_hypervisor::template::templates::SHORT;
use vshmem_inspect::pools::{find, name_of};

/// The tag of candidates that are files.
const FILE: &str = "file";

/// Whether it is the name of a file.
pub fn is_file(candidate: &CompletionCandidate) -> bool {
    candidate.get_tag().is_some_and(|tag| tag.to_string() == FILE)
}

/// Clusters.
pub fn clusters() -> ArgValueCandidates {
    ArgValueCandidates::new(|| candidates(names::clusters()))
}

/// Templates, by the beginnings of their names.
pub fn templates() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let all = Store::open().and_then(|store| store.list()).unwrap_or_default();
        candidates(all.into_iter().map(|listed| listed.id[..SHORT].to_owned()))
    })
}

/// Machines of the cluster that the line names.
pub fn machines() -> ArgValueCandidates {
    ArgValueCandidates::new(|| candidates(names::machines(&cluster())))
}

/// Machines that were attached.
pub fn attached() -> ArgValueCandidates {
    ArgValueCandidates::new(|| candidates(names::attached()))
}

/// Machines of the cluster, and attached ones.
pub fn targets() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let mut all = names::machines(&cluster());
        all.extend(names::attached());
        candidates(all)
    })
}

/// Pools, by name or path.
pub fn pools() -> ArgValueCompleter {
    ArgValueCompleter::new(|word: &OsStr| named_or_file(word, pool_names()))
}

/// Pools that machines were given, by their names there, or by a name or path here.
pub fn granted() -> ArgValueCompleter {
    ArgValueCompleter::new(|word: &OsStr| {
        let mut all: BTreeSet<String> = pool_names().into_iter().collect();
        all.extend(names::granted(&cluster()));
        named_or_file(word, all)
    })
}

/// Files.
pub fn files() -> ArgValueCompleter {
    ArgValueCompleter::new(|word: &OsStr| matching(PathCompleter::any(), word))
}

/// Images: those that have a name, and files.
pub fn images() -> ArgValueCompleter {
    ArgValueCompleter::new(|word: &OsStr| {
        let table = Table::read().unwrap_or_default();
        let named = starting(word, table.names().map(String::from));
        match named.is_empty() || word.is_empty() {
            true => named.into_iter().chain(matching(PathCompleter::any(), word)).collect(),
            false => named,
        }
    })
}

/// Directories.
pub fn directories() -> ArgValueCompleter {
    ArgValueCompleter::new(|word: &OsStr| matching(PathCompleter::dir(), word))
}

/// A program after `--`, and its arguments.
pub fn command() -> ArgValueCompleter {
    ArgValueCompleter::new(|word: &OsStr| {
        let is_path = word.as_encoded_bytes().contains(&b'/');
        let is_first = words_before().last().is_some_and(|last| last == "--");
        match is_first && !is_path {
            true => candidates(programs(&word.to_string_lossy())),
            false => matching(PathCompleter::any(), word),
        }
    })
}

fn pool_names() -> Vec<String> {
    let pools = find(None).unwrap_or_default();
    pools.iter().map(name_of).collect()
}

/// The cluster that the command line names, or the default.
fn cluster() -> String {
    named_cluster(&words_before())
        .or_else(|| std::env::var("VSHMEM_CLUSTER").ok())
        .unwrap_or_else(|| "default".into())
}

/// The cluster that a line names. A shell may have split it at `=`.
fn named_cluster(words: &[OsString]) -> Option<String> {
    let mut words = words.iter().map(|word| word.to_string_lossy());
    while let Some(word) = words.next() {
        if word == "--" {
            break;
        }
        if matches!(&*word, "-c" | "--cluster") {
            let value = words.find(|word| word != "=");
            return value.map(String::from);
        }
        let long = word.strip_prefix("--cluster=");
        if let Some(name) = long.or_else(|| word.strip_prefix("-c")) {
            return Some(name.trim_start_matches('=').into());
        }
    }
    None
}

fn candidates(names: impl IntoIterator<Item = String>) -> Vec<CompletionCandidate> {
    names.into_iter().map(CompletionCandidate::new).collect()
}

/// The names that begin with the word.
fn starting(word: &OsStr, names: impl IntoIterator<Item = String>) -> Vec<CompletionCandidate> {
    let word = word.to_string_lossy();
    let names = names.into_iter().filter(|name| name.starts_with(&*word));
    candidates(names)
}

/// The files that match the word.
fn matching(files: PathCompleter, word: &OsStr) -> Vec<CompletionCandidate> {
    let tag = |file: CompletionCandidate| file.tag(Some(StyledStr::from(FILE)));
    files.complete(word).into_iter().map(tag).collect()
}

/// Names, or files if the word has a slash.
fn named_or_file(word: &OsStr, names: impl IntoIterator<Item = String>) -> Vec<CompletionCandidate> {
    match word.as_encoded_bytes().contains(&b'/') {
        true => matching(PathCompleter::any(), word),
        false => starting(word, names),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cluster_is_read_from_the_line() {
        let named = |line: &str| {
            let words: Vec<_> = line.split(' ').map(OsString::from).collect();
            named_cluster(&words)
        };
        for line in ["-c two", "-ctwo", "-c=two", "--cluster two", "--cluster=two", "--cluster = two"] {
            assert_eq!(named(&format!("vshmem exec {line}")).as_deref(), Some("two"), "{line}");
        }
        assert_eq!(named("vshmem exec vm0 -- tar -c two"), None);
        assert_eq!(named("vshmem exec"), None);
    }
}
