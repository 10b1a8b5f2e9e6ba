//! The man pages of subcommands, generated from clap's data: `vshmem manual DIRECTORY`, for `make install`.
//! vshmem(1) is written by hand.

use clap::{Command, CommandFactory};
use clap_mangen::roff::{bold, roman, Inline, Roff};
use clap_mangen::Man;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use vshmem_base::{error, Result};

/// The page vshmem(1), whose date the generated pages have.
const BY_HAND: &str = include_str!("../../../docs/man/vshmem.1");

/// Writes a page for each command below the top one.
pub fn write(directory: &Path) -> Result<u8> {
    let written = pages().iter().try_for_each(|command| page(command, directory));
    let refused = |e| error!("could not write to {}: {e}", directory.display());
    written.map(|()| 0).map_err(refused)
}

/// The commands that have a page.
fn pages() -> Vec<Command> {
    fn collect(command: &Command, all: &mut Vec<Command>) {
        for one in shown(command) {
            all.push(one.clone());
            collect(one, all);
        }
    }
    let mut top = crate::commands::Cli::command().disable_help_subcommand(true);
    top.build();
    let mut all = Vec::new();
    collect(&top, &mut all);
    all
}

fn shown(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|one| !one.is_hide_set())
}

/// The name of a page: `vshmem-pool-create`.
fn name(command: &Command) -> &str {
    command.get_display_name().expect("it was built")
}

fn page(command: &Command, directory: &Path) -> io::Result<()> {
    let file = File::create(directory.join(format!("{}.1", name(command))))?;
    let mut out = BufWriter::new(file);
    let man = Man::new(command.clone())
        .title(name(command).to_uppercase())
        .section("1")
        .date(date())
        .source("Vshmem")
        .manual("General Commands Manual");
    let help = HelpSections::of(command);
    man.render_title(&mut out)?;
    man.render_name_section(&mut out)?;
    synopsis(command).to_writer(&mut out)?;
    description(command, &help).to_writer(&mut out)?;
    if command.get_arguments().any(|one| !one.is_hide_set()) {
        let mut options = Vec::new();
        man.render_options_section(&mut options)?;
        out.write_all(&without_gaps(options))?;
    }
    if command.has_subcommands() {
        man.render_subcommands_section(&mut out)?;
    }
    literal("EXAMPLES", help.examples.as_deref()).to_writer(&mut out)?;
    let codes = help.codes.as_deref().unwrap_or(crate::args::EXIT_CODES);
    literal("EXIT STATUS", Some(&below_heading(codes))).to_writer(&mut out)?;
    see_also(command).to_writer(&mut out)?;
    out.flush()
}

/// The command line as its help shows it.
fn synopsis(command: &Command) -> Roff {
    let usage = command.clone().render_usage().to_string();
    let mut roff = Roff::new();
    roff.control("SH", ["SYNOPSIS"]);
    roff.text([roman(usage.trim_start_matches("Usage: "))]);
    roff
}

/// Removes the empty line before a list of values, of which mandoc's lint complains.
fn without_gaps(options: Vec<u8>) -> Vec<u8> {
    let text = String::from_utf8(options).expect("it is text");
    text.replace("\n.br\n\n.br\n", "\n.br\n").into()
}

/// The date of vshmem(1).
fn date() -> &'static str {
    let first = BY_HAND.lines().find_map(|line| line.strip_prefix(".Dd "));
    first.expect("it has a date")
}

/// The parts of a command's help below its options.
#[derive(Default)]
struct HelpSections {
    paragraphs: Vec<String>,
    examples: Option<String>,
    codes: Option<String>,
}

impl HelpSections {
    fn of(command: &Command) -> HelpSections {
        let text = command.get_after_help().map(ToString::to_string);
        let mut help = HelpSections::default();
        for part in text.iter().flat_map(|text| text.split("\n\n")) {
            let part = part.trim_end();
            if part.starts_with("Examples:") {
                help.examples = Some(below_heading(part));
            } else if part.starts_with("Exit codes:") {
                help.codes = Some(part.into());
            } else if !part.is_empty() {
                help.paragraphs.push(part.into());
            }
        }
        help
    }
}

/// A part without its first line.
fn below_heading(part: &str) -> String {
    part.split_once('\n').map_or("", |(_, rest)| rest).into()
}

fn description(command: &Command, help: &HelpSections) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["DESCRIPTION"]);
    if let Some(about) = command.get_about() {
        roff.text([roman(format!("{about}."))]);
    }
    for paragraph in &help.paragraphs {
        roff.control("PP", []);
        roff.text([roman(paragraph.as_str())]);
    }
    roff
}

/// Lines that are not filled.
fn literal(heading: &str, lines: Option<&str>) -> Roff {
    let mut roff = Roff::new();
    let Some(lines) = lines else {
        return roff;
    };
    roff.control("SH", [heading]);
    roff.control("nf", []);
    for line in lines.lines() {
        roff.text([roman(line.strip_prefix("  ").unwrap_or(line))]);
    }
    roff.control("fi", []);
    roff
}

/// The page above, and those that explain everything.
fn see_also(command: &Command) -> Roff {
    let above = name(command).rsplit_once('-').map(|(above, _)| above).filter(|above| *above != "vshmem");
    let mut words: Vec<Inline> = vec![bold("vshmem"), roman("(1), ")];
    if let Some(above) = above {
        words.extend([bold(above), roman("(1), ")]);
    }
    words.extend([bold("libvshmem"), roman("(7)")]);
    let mut roff = Roff::new();
    roff.control("SH", ["SEE ALSO"]);
    roff.text(words);
    roff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_has_a_page_that_vshmem_1_names() {
        let pages = pages();
        assert!(pages.iter().any(|one| name(one) == "vshmem-pool-create"));
        for page in &pages {
            let line = format!(".Xr {} 1", name(page));
            assert!(BY_HAND.contains(&line), "vshmem(1) lacks: {line}");
        }
    }

    #[test]
    fn help_is_taken_apart() {
        let command = Command::new("x").after_help("Examples:\n  x y\n\nIt is so.\n\nExit codes:\n  0  so");
        let help = HelpSections::of(&command);
        assert_eq!(help.examples.as_deref(), Some("  x y"));
        assert_eq!(help.paragraphs, ["It is so."]);
        assert_eq!(help.codes.as_deref(), Some("Exit codes:\n  0  so"));
    }
}
