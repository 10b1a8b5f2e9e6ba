//! Completion in shells. A shell's script calls `_VSHMEM_COMPLETE=SHELL vshmem -- WORD...`, which prints
//! candidates for the word: options and commands, which clap knows, and the names that [`values`] looks up.

pub mod values;
mod words;

use crate::commands::Cli;
use crate::external;
use clap::{Arg, Command, CommandFactory};
use clap_complete::engine::{complete as candidates, CompletionCandidate};
use clap_complete::env::{self, EnvCompleter, Shells};
use clap_complete::CompleteEnv;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use words::index;

/// The variable that is set in calls by a shell's script.
const REQUEST: &str = "_VSHMEM_COMPLETE";

const SHELLS: &[&dyn EnvCompleter] = &[&Bash, &env::Elvish, &env::Fish, &env::Powershell, &Zsh];

/// Answers a shell's script; `None` if this is not a call by one. Errors are not printed, since the user is
/// typing.
pub fn answer() -> Option<ExitCode> {
    std::env::var_os(REQUEST)?;
    let completion = CompleteEnv::with_factory(command).var(REQUEST).shells(Shells(SHELLS));
    let here = std::env::current_dir().ok();
    match completion.try_complete(std::env::args_os(), here.as_deref()) {
        Ok(true) => Some(ExitCode::SUCCESS),
        Ok(false) => None,
        Err(_) => Some(ExitCode::FAILURE),
    }
}

/// The command, with the external ones, which take files.
fn command() -> Command {
    external::words().into_iter().fold(Cli::command(), |all, word| {
        let about = format!("Run vshmem-{word}");
        let files = Arg::new("argument").num_args(..).trailing_var_arg(true).allow_hyphen_values(true);
        all.subcommand(
            Command::new(word).about(about).disable_help_flag(true).arg(files.add(values::files())),
        )
    })
}

/// The script for a shell.
pub fn script(shell: clap_complete::Shell) -> String {
    let completer = Shells(SHELLS).completer(&shell.to_string());
    let mut text = Vec::new();
    completer
        .expect("each shell has one")
        .write_registration(REQUEST, "vshmem", "vshmem", "vshmem", &mut text)
        .expect("memory takes it");
    String::from_utf8(text).expect("a script is text")
}

/// bash splits words at `=`, does not quote candidates, and completes file names best itself.
struct Bash;

impl EnvCompleter for Bash {
    fn name(&self) -> &'static str {
        "bash"
    }

    fn is(&self, name: &str) -> bool {
        name == "bash"
    }

    fn write_registration(&self, _: &str, _: &str, _: &str, _: &str, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(include_bytes!("bash.sh"))
    }

    fn write_complete(
        &self,
        command: &mut clap::Command,
        words: Vec<OsString>,
        here: Option<&Path>,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let words = joined(words);
        let last = words.len().saturating_sub(1);
        let word = words.last().cloned().unwrap_or_default();
        let mut found = candidates(command, words, last, here)?;
        if !word.as_encoded_bytes().starts_with(b"-") {
            without_options(&mut found);
        }
        if found.iter().any(values::is_file) {
            return writeln!(out, "/");
        }
        let option = word.to_string_lossy();
        let option = option.split_once('=').map(|(option, _)| format!("{option}="));
        for candidate in &found {
            let text = candidate.get_value().to_string_lossy();
            let text = option.as_ref().and_then(|option| text.strip_prefix(option)).unwrap_or(&text);
            writeln!(out, "{text}")?;
        }
        Ok(())
    }
}

/// Words in which `--option`, `=` and `value` are one again.
fn joined(words: Vec<OsString>) -> Vec<OsString> {
    let mut out: Vec<OsString> = Vec::new();
    let mut is_open = false;
    for word in words {
        let long = |before: &OsString| before.as_encoded_bytes().starts_with(b"--") && before.len() > 2;
        match out.last_mut() {
            Some(before) if is_open || word == OsStr::new("=") && long(before) => {
                is_open = !is_open;
                before.push(word);
            }
            _ => {
                is_open = false;
                out.push(word);
            }
        }
    }
    out
}

/// Removes options, unless there are no other candidates.
fn without_options(found: &mut Vec<CompletionCandidate>) {
    let is_option = |one: &CompletionCandidate| one.get_value().as_encoded_bytes().starts_with(b"-");
    if !found.iter().all(is_option) {
        found.retain(|one| !is_option(one));
    }
}

/// zsh passes words without their quotes, shows a description beside each candidate, and completes file names
/// itself.
struct Zsh;

impl EnvCompleter for Zsh {
    fn name(&self) -> &'static str {
        "zsh"
    }

    fn is(&self, name: &str) -> bool {
        name == "zsh"
    }

    fn write_registration(&self, _: &str, _: &str, _: &str, _: &str, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(include_bytes!("zsh.sh"))
    }

    fn write_complete(
        &self,
        command: &mut clap::Command,
        mut words: Vec<OsString>,
        here: Option<&Path>,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        words.truncate(index().map_or(words.len(), |index| index.saturating_add(1)));
        // The word may begin with an open quote.
        if let Some(word) = words.pop() {
            let text = word.to_string_lossy();
            words.push(text.trim_start_matches(['\'', '"']).into());
        }
        let last = words.len().saturating_sub(1);
        let found = candidates(command, words, last, here)?;
        if found.iter().any(values::is_file) {
            return writeln!(out, "/");
        }
        for candidate in &found {
            let text = candidate.get_value().to_string_lossy();
            let help = candidate.get_help().map(ToString::to_string);
            let help = help.as_deref().and_then(|help| help.lines().next());
            let help = help.unwrap_or_default().replace('\\', "\\\\");
            let text = text.replace('\\', "\\\\").replace(':', "\\:");
            writeln!(out, "{text}:{help}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_and_values_are_joined() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        let joined = |line: &str| joined(words(line));
        assert_eq!(joined("vshmem down --cluster = al"), words("vshmem down --cluster=al"));
        let open = [words("vshmem down"), vec!["--cluster=".into()]].concat();
        assert_eq!(joined("vshmem down --cluster ="), open);
        assert_eq!(joined("vshmem run -- = x"), words("vshmem run -- = x"));
        assert_eq!(joined("vshmem ps --json"), words("vshmem ps --json"));
        assert_eq!(joined("vshmem a --b = c --d = e f"), words("vshmem a --b=c --d=e f"));
    }

    #[test]
    fn each_shell_has_a_script() {
        use clap::ValueEnum;
        for shell in clap_complete::Shell::value_variants() {
            assert!(script(*shell).contains(REQUEST), "{shell}");
        }
    }
}
