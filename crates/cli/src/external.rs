//! External commands: `vshmem WORD` runs `vshmem-WORD` from the `PATH`, as git does, for a word that is no
//! command of its own.

use crate::commands::Cli;
use crate::program::programs;
use clap::CommandFactory;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};
use vshmem_mpi::files::locate;

/// The beginning of an external command's program; the word follows.
const PREFIX: &str = "vshmem-";

/// The words of this project's own programs, and the packages that have them.
const PACKAGES: [(&str, &str); 3] = [("balance", "vshmem"), ("lab", "vshmem-lab"), ("place", "vshmem")];

/// Executes the program that the words ask for, with the rest of them. Returns `None` if they ask for none,
/// or there is none: then the parser explains the mistake. A code comes back only if the program can't be
/// executed, or is one of ours that is not installed.
pub fn run(words: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let mut words = words.into_iter().skip(1);
    let word = words.next()?;
    let name = name(&word)?;
    let Some(file) = locate(&OsString::from(&name), Path::new("")) else {
        let (_, package) = PACKAGES.iter().find(|(ours, _)| word == *ours)?;
        tell!(
            "vshmem: there is no program {name} in PATH\n  \
             Install the package {package}, or make install in a clone of Vshmem."
        );
        return Some(ExitCode::from(127));
    };
    let error = Command::new(&file).args(words).exec();
    tell!("vshmem: {} could not be executed: {error}", file.display());
    Some(ExitCode::from(126))
}

/// The name of the program for a word; `None` if it is an option or a command of our own.
fn name(word: &OsStr) -> Option<String> {
    let word = word.to_str()?;
    let is_external = !word.is_empty() && !word.starts_with('-') && !word.contains('/');
    let is_external = is_external && word != "help" && Cli::command().find_subcommand(word).is_none();
    is_external.then(|| format!("{PREFIX}{word}"))
}

/// The words that external commands exist for.
pub fn words() -> Vec<String> {
    let stripped = |program: String| program.strip_prefix(PREFIX).map(str::to_owned);
    let mut all: Vec<String> = programs(PREFIX).into_iter().filter_map(stripped).collect();
    all.retain(|word| name(OsStr::new(word)).is_some());
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unknown_words_are_external() {
        let named = |word: &str| name(OsStr::new(word));
        assert_eq!(named("lab").as_deref(), Some("vshmem-lab"));
        for word in ["up", "help", "completion", "-h", "--version", "", "../lab", "manual"] {
            assert_eq!(named(word), None, "{word}");
        }
    }
}
