//! The documentation of the checks, as the table has it: `--explain`, and docs/doctor-checks.md.

use crate::check::Check;
use crate::checks::CHECKS;

/// The width of a page.
const WIDTH: usize = 100;

/// The documentation of a check; what it is about is in lines of a page, or of so many columns if that is
/// less.
pub fn explain(check: &Check, columns: Option<usize>) -> String {
    let Check { id, title, about, by_hand, remedy, class, risk, source, causes, .. } = check;
    let mut out = format!("{id}: {title}.\n\n{}\n\n", wrap(about, columns.unwrap_or(WIDTH)));
    for (head, text) in [
        ("by hand", (*by_hand).into()),
        ("remedy", format!("{remedy} ({class})")),
        ("risk", (*risk).into()),
        ("follows from", causes.join(", ")),
        ("source", (*source).into()),
    ] {
        if !text.is_empty() {
            out += &format!("{head:<14}{text}\n");
        }
    }
    out
}

/// The page of all checks.
pub fn page() -> String {
    let intro = "This page is what `vshmem doctor --explain all` prints. [doctor.md](doctor.md) says how to use them.";
    let mut out = format!("# Checks of vshmem doctor\n\n{intro}\n");
    for check in CHECKS {
        let Check { id, title, about, by_hand, remedy, class, risk, source, causes, .. } = check;
        out += &format!("\n## {id}\n\n{title}.\n\n{}\n\n```sh\n{by_hand}\n```\n\n", wrap(about, WIDTH));
        let causes = causes.iter().map(|id| format!("[{id}](#{id})")).collect::<Vec<_>>().join(", ");
        out += "| | |\n| --- | --- |\n";
        for (head, text) in [
            ("remedy", format!("{remedy} ({class})")),
            ("risk", (*risk).into()),
            ("source", (*source).into()),
            ("follows from", causes),
        ] {
            if !text.is_empty() {
                out += &format!("| {head} | {text} |\n");
            }
        }
    }
    out
}

/// A text in lines.
fn wrap(text: &str, columns: usize) -> String {
    let mut out = String::new();
    let mut length = 0;
    for word in text.split_whitespace() {
        let width = word.chars().count();
        let separator = match length {
            0 => "",
            _ if length + 1 + width > columns.min(WIDTH) => "\n",
            _ => " ",
        };
        length = if separator == " " { length + 1 + width } else { width };
        out += separator;
        out += word;
    }
    out
}
