//! The groups of commands, by subject, as `vshmem --help` shows them.

use crate::commands::Cli;
use crate::output::{terminal_columns, wrapped};
use clap::{Command, CommandFactory, FromArgMatches};
use std::ffi::OsString;

/// The groups, each with its commands. The first has those that a newcomer needs.
const GROUPS: [(&str, &[&str]); 5] = [
    ("To begin with", &["up", "run", "mpirun", "explain", "down"]),
    (
        "Machines",
        &[
            "ps", "exec", "shell", "cp", "logs", "ssh", "grow", "shrink", "restart", "repair", "template",
            "devices", "attach", "detach",
        ],
    ),
    ("Pools", &["pool", "grant", "revoke", "ipcs", "ipcrm", "check", "top"]),
    ("Tuning", &["doctor"]),
    ("For other tools", &["agent", "xen", "inventory", "schema", "completions"]),
];

/// Columns of help at the most: longer lines are hard to read.
const WIDTH: usize = 100;

const TEMPLATE: &str = "\
{about-with-newline}
{usage-heading} {usage}

{before-help}Options:
{options}{after-help}";

/// Parses a command line, or prints the mistake and exits.
pub fn parse(words: Vec<OsString>) -> Cli {
    let all = Cli::command();
    let text = text(&all);
    let columns = terminal_columns().min(WIDTH);
    let all = with_paragraphs(all.help_template(TEMPLATE).before_help(text.trim_end().to_owned()), columns);
    let matches = all.max_term_width(WIDTH).get_matches_from(words);
    Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

/// A command whose texts, and those of its subcommands, have no line breaks within paragraphs: they are
/// wrapped to the terminal's width. Lines that are indented, such as examples, are wrapped here: clap would
/// have what is said beside a command go on below the command.
fn with_paragraphs(command: Command, columns: usize) -> Command {
    let text = command.get_after_help().map(|text| beside(&joined(&text.to_string()), columns));
    let command = match text {
        Some(text) => command.after_help(text),
        None => command,
    };
    command.mut_subcommands(|command| with_paragraphs(command, columns))
}

/// The text with indented lines wrapped.
fn beside(text: &str, columns: usize) -> String {
    let line = |line: &str| match line.starts_with(' ') {
        true => wrapped(line, columns),
        false => line.into(),
    };
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

/// The text with each paragraph as one line. What is indented stays as it is, and what ends with a colon.
fn joined(text: &str) -> String {
    let mut out = String::new();
    let mut open = false;
    for line in text.lines() {
        let plain = !line.is_empty() && !line.starts_with(' ');
        out.push_str(if open && plain { " " } else { "\n" });
        out.push_str(line);
        open = plain && !line.ends_with(':');
    }
    out.split_off(1.min(out.len()))
}

/// Each group with its commands, a line each.
fn text(all: &Command) -> String {
    let width = GROUPS.iter().flat_map(|(_, names)| names.iter()).map(|name| name.len()).max();
    let width = width.unwrap_or_default();
    let line = |name: &&str| {
        let about = all.find_subcommand(name).and_then(Command::get_about);
        format!("  {name:width$}  {}\n", about.map(ToString::to_string).unwrap_or_default())
    };
    let group = |(title, names): &(&str, &[&str])| {
        format!("{title}:\n{}", names.iter().map(line).collect::<String>())
    };
    GROUPS.iter().map(group).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paragraphs_are_lines() {
        let text = "Examples:\n  a\n  b\n\nOne\ntwo.\n\nExit codes:\n  0  good";
        assert_eq!(joined(text), "Examples:\n  a\n  b\n\nOne two.\n\nExit codes:\n  0  good");
        assert_eq!(joined(""), "");
    }

    #[test]
    fn examples_go_on_beside_what_they_explain() {
        let text = "A paragraph that is long\n  vshmem ps -l   all columns and more";
        let shown = "A paragraph that is long\n  vshmem ps -l   all columns\n                 and more";
        assert_eq!(beside(text, 28), shown);
    }

    #[test]
    fn each_command_is_in_one_group() {
        let all = Cli::command();
        let shown = all.get_subcommands().filter(|command| !command.is_hide_set());
        let mut shown: Vec<_> = shown.map(Command::get_name).collect();
        let mut grouped: Vec<_> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        shown.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(shown, grouped);
    }

    #[test]
    fn its_lines_fit_a_terminal() {
        for line in text(&Cli::command()).lines() {
            assert!(line.len() <= 80, "{line}");
        }
    }
}
