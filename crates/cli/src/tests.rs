//! A test that commands and options exist which messages, documentation and examples name.

use crate::commands::Cli;
use clap::{Command, CommandFactory};
use std::fs;
use std::path::{Path, PathBuf};

/// Files below a directory that tell users what to type.
fn texts(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let kind = path.extension().and_then(|kind| kind.to_str());
        if path.is_dir() {
            texts(&path, found);
        } else if matches!(kind, Some("md" | "rs" | "sh" | "1" | "3" | "4" | "7" | "yaml" | "xml")) {
            found.push(path);
        }
    }
}

fn has(command: &Command, option: &str) -> bool {
    let mut all = command.get_arguments();
    option == "help"
        || all.any(|it| it.get_long_and_visible_aliases().is_some_and(|names| names.contains(&option)))
}

/// The options in the rest of a line that are this command's: until the sentence or the command ends, or a
/// program's own begin.
fn options(rest: &str) -> impl Iterator<Item = &str> {
    let rest = rest.split("vshmem ").next().unwrap_or(rest);
    let mut over = false;
    rest.split(' ')
        .map_while(move |word| {
            if over || word == "--" {
                return None;
            }
            over = word.ends_with(['.', ',', ';', '|', '&', ')', '`', '"', '\'']);
            let end = |c: char| !c.is_ascii_lowercase() && c != '-';
            let name = word.strip_prefix("--").and_then(|name| name.split(end).next());
            Some(name)
        })
        .flatten()
}

#[test]
fn commands_and_options_that_are_named_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = vec![root.join("README.md")];
    for part in ["docs", "examples", "crates/cli/src", "crates/machines", "crates/sysv/agent/src"] {
        texts(&root.join(part), &mut files);
    }
    let all = Cli::command();
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        for (number, line) in text.lines().enumerate() {
            for (at, _) in line.match_indices("vshmem ") {
                let mut rest = &line[at + "vshmem ".len()..];
                let mut command = &all;
                while let Some(next) = rest
                    .split(|c: char| !c.is_ascii_lowercase())
                    .next()
                    .and_then(|word| command.find_subcommand(word))
                {
                    rest = rest[next.get_name().len()..].trim_start();
                    command = next;
                }
                for option in options(rest).filter(|_| command.get_name() != all.get_name()) {
                    seen += 1;
                    if !has(command, option) {
                        wrong.push(format!(
                            "{}:{}: {} --{option}",
                            file.display(),
                            number + 1,
                            command.get_name()
                        ));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(seen > 100, "only {seen} were found");
}

/// Words of the design are not in help (docs/design/glossary.md).
#[test]
fn help_has_words_for_users() {
    fn check(mut command: Command) {
        let help = command.render_long_help().to_string().to_lowercase();
        let words = help.split_whitespace().collect::<Vec<_>>().join(" ");
        for word in ["back end", "front end", "keeper", "woken"] {
            assert!(!words.contains(word), "{}: {word}", command.get_name());
        }
        command.get_subcommands().filter(|it| !it.is_hide_set()).cloned().for_each(check);
    }
    check(Cli::command());
}
