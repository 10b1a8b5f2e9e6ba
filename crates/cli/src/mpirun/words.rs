//! The words of a command line for mpirun as its users write them: options like `-host`, `-np 4` and `-x
//! NAME`, which clap would take for several of one letter.

use crate::commands::Cli;
use clap::{ArgAction, Command, CommandFactory};
use std::ffi::{OsStr, OsString};
use vshmem_base::{error, Result};

/// The meaning of an option of mpiexec's.
#[derive(Clone, Copy)]
enum Meaning {
    /// The meaning of these words; the last may be an option that takes a value.
    Ours(&'static [&'static str]),
    /// None: it holds anyway.
    Holding,
    /// It is the launcher's business, as are so many words behind it.
    PassedOn(usize),
    /// A variable's name and its value are the next words.
    Variable,
    /// The next word is a variable, or those that begin as it says: `NAME=VALUE`, `NAME` or `NAME*`.
    Exported,
    /// The next word lists variables.
    List,
    /// The next word says where ranks run.
    Placed,
}

use Meaning::{Exported, Holding, List, Ours, PassedOn, Placed, Variable};

/// Options of mpiexec's, without their dashes: for Open MPI one is as good as two.
const MPIEXEC_OPTIONS: &[(&str, Meaning)] = &[
    ("N", Ours(&["--ppn"])),
    ("allow-run-as-root", Holding),
    ("disable-auto-cleanup", PassedOn(0)),
    ("display", PassedOn(1)),
    ("display-allocation", PassedOn(0)),
    ("display-map", PassedOn(0)),
    ("env", Variable),
    ("envall", Holding),
    ("envlist", List),
    ("errfile-pattern", PassedOn(1)),
    ("genv", Variable),
    ("genvall", Holding),
    ("genvlist", List),
    ("hosts", Ours(&["--host"])),
    ("iface", PassedOn(1)),
    ("machinefile", Ours(&["--hostfile"])),
    ("map-by", Placed),
    ("mca", PassedOn(2)),
    ("n", Ours(&["-n"])),
    ("npernode", Ours(&["--ppn"])),
    ("outfile-pattern", PassedOn(1)),
    ("output", PassedOn(1)),
    ("output-filename", PassedOn(1)),
    ("oversubscribe", Holding),
    ("perhost", Ours(&["--ppn"])),
    ("pernode", Ours(&["--ppn", "1"])),
    ("pmixmca", PassedOn(2)),
    ("prepend-pattern", PassedOn(1)),
    ("prepend-rank", Ours(&["--label"])),
    ("print-all-exitcodes", PassedOn(0)),
    ("prtemca", PassedOn(2)),
    ("rank-by", PassedOn(1)),
    ("report-bindings", PassedOn(0)),
    ("tag-output", Ours(&["--label"])),
    ("timeout", PassedOn(1)),
    ("use-hwthread-cpus", PassedOn(0)),
    ("usize", PassedOn(1)),
    ("verbose", PassedOn(0)),
    ("wd", Ours(&["--cwd"])),
    ("wdir", Ours(&["--cwd"])),
    ("x", Exported),
];

/// Puts the words of a command line as clap takes them, if they are those of `vshmem mpirun`.
pub fn translate(words: Vec<OsString>) -> Result<Vec<OsString>> {
    if words.get(1).is_none_or(|word| word != "mpirun") {
        return Ok(words);
    }
    let all = Cli::command();
    let command = all.find_subcommand("mpirun").expect("it is a command");
    let mut words = words.into_iter();
    let mut out: Vec<OsString> = words.by_ref().take(2).collect();
    while let Some(word) = words.next() {
        let text = word.to_str().unwrap_or_default();
        if text == "--" || !text.starts_with('-') {
            // The rest is the program's.
            out.push("--".into());
            out.extend((text != "--").then_some(word));
            break;
        }
        out.extend(option(command, text, &mut words)?);
    }
    out.extend(words);
    Ok(out)
}

/// An option, with its values, as clap takes it.
fn option(
    command: &Command,
    text: &str,
    words: &mut impl Iterator<Item = OsString>,
) -> Result<Vec<OsString>> {
    let name = text.trim_start_matches('-');
    if let Some(takes_value) = takes_value(command, text) {
        return Ok(std::iter::once(text.into()).chain(words.take(takes_value.into())).collect());
    }
    if let Some((_, meaning)) = MPIEXEC_OPTIONS.iter().find(|(option, _)| *option == name) {
        return translate_option(command, text, *meaning, words);
    }
    // Both MPIs write -host.
    let long = format!("--{name}");
    if let Some(takes_value) = takes_value(command, &long) {
        return Ok(std::iter::once(long.into()).chain(words.take(takes_value.into())).collect());
    }
    if let Some((letter, value)) = attached(text).filter(|(it, _)| takes_value(command, it) == Some(true)) {
        return Ok([letter, value].map(Into::into).into());
    }
    Err(error!("there is no option {text}")
        .hint("Its own are listed by --help. Others are passed to the MPI's mpiexec by --mpiexec-arg=WORD, a word each.")
        .code(2))
}

fn translate_option(
    command: &Command,
    text: &str,
    meaning: Meaning,
    words: &mut impl Iterator<Item = OsString>,
) -> Result<Vec<OsString>> {
    let mut next = || words.next().ok_or_else(|| error!("{text} needs a value").code(2));
    Ok(match meaning {
        Holding => vec![],
        Ours(ours) => {
            let has_value = ours.last().and_then(|last| takes_value(command, last)) == Some(true);
            let value = if has_value { Some(next()?) } else { None };
            ours.iter().map(Into::into).chain(value).collect()
        }
        PassedOn(count) => {
            let values = (0..count).map(|_| next()).collect::<Result<Vec<_>>>()?;
            passed_on(std::iter::once(text.into()).chain(values))
        }
        Variable => vec!["--env".into(), joined(&next()?, &next()?)],
        Exported => exported(&next()?),
        List => next()?.to_string_lossy().split(',').flat_map(|name| exported(name.as_ref())).collect(),
        Placed => {
            let place = next()?;
            match place.to_str().and_then(ranks_in_host) {
                Some(count) => vec!["--ppn".into(), count.into()],
                None => passed_on([text.into(), place]),
            }
        }
    })
}

/// The words that pass an option on to mpiexec.
fn passed_on(words: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    words.into_iter().flat_map(|word| ["--mpiexec-arg".into(), word]).collect()
}

/// K of `ppr:K:node`.
fn ranks_in_host(place: &str) -> Option<&str> {
    let count = place.strip_prefix("ppr:")?.strip_suffix(":node")?;
    count.bytes().all(|b| b.is_ascii_digit()).then_some(count)
}

/// The options for a variable that has a value, or for those that have one here.
fn exported(variable: &OsStr) -> Vec<OsString> {
    let bytes = variable.as_encoded_bytes();
    if bytes.contains(&b'=') {
        return vec!["--env".into(), variable.into()];
    }
    let is_meant = |name: &OsStr| match bytes.strip_suffix(b"*") {
        Some(beginning) => name.as_encoded_bytes().starts_with(beginning),
        None => name == variable,
    };
    let all = std::env::vars_os().filter(|(name, _)| is_meant(name));
    all.flat_map(|(name, value)| ["--env".into(), joined(&name, &value)]).collect()
}

/// A letter and the value behind it, as in `-n4`. One that begins with a small letter would be a word of some
/// mpiexec's, like `-nolocal`.
fn attached(text: &str) -> Option<(&str, &str)> {
    let (letter, value) = text.split_at_checked(2)?;
    value.starts_with(|first: char| !first.is_ascii_lowercase()).then_some((letter, value))
}

fn joined(name: &OsStr, value: &OsStr) -> OsString {
    let mut out = name.to_os_string();
    out.push("=");
    out.push(value);
    out
}

/// Whether the word behind this option belongs to it; `None`: clap knows no such option.
fn takes_value(command: &Command, option: &str) -> Option<bool> {
    let (option, has_value) = option.split_once('=').map_or((option, false), |(option, _)| (option, true));
    let mut letters = option.chars().skip(1);
    let letter = letters.next().filter(|_| letters.next().is_none());
    let named = command.get_arguments().find(|argument| match option.strip_prefix("--") {
        Some(long) => {
            argument.get_long() == Some(long)
                || argument.get_all_aliases().is_some_and(|all| all.contains(&long))
        }
        None => letter.is_some() && argument.get_short() == letter,
    });
    if matches!(option, "-h" | "--help") {
        return Some(false);
    }
    named.map(|it| !has_value && matches!(it.get_action(), ArgAction::Set | ArgAction::Append))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::Command as Parsed;
    use crate::mpirun::args::Mpirun;
    use clap::Parser;

    fn parse(line: &str) -> Mpirun {
        let words = line.split(' ').map(OsString::from).collect();
        let words = translate(words).unwrap_or_else(|why| panic!("{why}"));
        let Parsed::Mpirun(mpirun) = Cli::try_parse_from(words).unwrap_or_else(|e| panic!("{e}")).command
        else {
            panic!("mpirun was asked for")
        };
        *mpirun
    }

    #[test]
    fn habits_are_understood() {
        let got = parse("vshmem mpirun -np 4 -host a:2,b:2 -x A=1 -wdir /tmp ./a.out -host x -np 2");
        assert_eq!((got.ranks, got.host.join(" ")), (Some(4), "a:2,b:2".into()));
        assert_eq!(got.how.env, ["A=1"]);
        assert_eq!(got.how.cwd.as_deref(), Some("/tmp".as_ref()));
        assert_eq!(got.line.command, ["./a.out", "-host", "x", "-np", "2"]);
        let got = parse("vshmem mpirun -hostfile h -ppn 2 -l -n4 -- ./a.out");
        assert_eq!(got.hostfile.as_deref(), Some("h".as_ref()));
        assert_eq!((got.label, got.ppn, got.ranks), (true, Some(2), Some(4)));
        let got = parse("vshmem mpirun --vm a,b --np 2 -c other --explain ./a.out -x y");
        assert_eq!((got.vm.len(), got.cluster.cluster.as_str()), (2, "other"));
        assert_eq!(got.line.command, ["./a.out", "-x", "y"]);
    }

    #[test]
    fn habits_of_both_are_understood() {
        let options = "--oversubscribe -N 2 --wd /tmp -genv A 1 -env B 2 --mca a b --tag-output";
        let got = parse(&format!("vshmem mpirun {options} ./a -N"));
        assert_eq!((got.ppn, got.label, got.how.cwd.as_deref()), (Some(2), true, Some("/tmp".as_ref())));
        assert_eq!(got.how.env, ["A=1", "B=2"]);
        assert_eq!(got.mpiexec_arg, ["--mca", "a", "b"]);
        assert_eq!(got.line.command, ["./a", "-N"]);
    }

    #[test]
    fn one_dash_is_as_good_as_two() {
        let options = "--n 2 -host a -host b -bind-to core --map-by ppr:2:node";
        let got = parse(&format!("vshmem mpirun {options} ./a"));
        assert_eq!((got.ranks, got.ppn, got.host.join(" ")), (Some(2), Some(2), "a b".into()));
        assert_eq!(got.bind_to.as_deref(), Some("core"));
        let got = parse("vshmem mpirun -pernode -map-by core -iface eth0 --hostfile=h -n4 ./a");
        assert_eq!((got.ranks, got.ppn), (Some(4), Some(1)));
        assert_eq!(got.mpiexec_arg, ["-map-by", "core", "-iface", "eth0"]);
        assert_eq!(got.hostfile.as_deref(), Some("h".as_ref()));
    }

    #[test]
    fn unknown_options_are_no_programs() {
        for option in ["--no-such", "-nolocal", "-envnone", "-configfile", "--prefix"] {
            let words = ["vshmem", "mpirun", option, "x", "./a"].map(OsString::from).into();
            match translate(words) {
                Err(why) => assert!(why.to_string().contains(option) && why.exit_code() == 2, "{why}"),
                Ok(words) => assert!(Cli::try_parse_from(words).is_err(), "{option}"),
            }
        }
        let words = ["vshmem", "mpirun", "-x"].map(OsString::from).into();
        assert!(translate(words).unwrap_err().to_string().starts_with("-x needs a value"));
    }

    #[test]
    fn other_commands_are_left_alone() {
        let words: Vec<OsString> = ["vshmem", "run", "-np", "2"].map(Into::into).into();
        assert_eq!(translate(words.clone()).unwrap(), words);
    }

    #[test]
    fn variables_without_a_value_keep_their_own() {
        let got = parse("vshmem mpirun -x PATH -x VSHMEM_NO_SUCH ./a.out");
        let path = format!("PATH={}", std::env::var("PATH").unwrap());
        assert_eq!(got.how.env.join(" "), path);
        let got = parse("vshmem mpirun -genvlist VSHMEM_NO_SUCH,PATH ./a.out");
        assert_eq!(got.how.env.join(" "), path);
        assert!(parse("vshmem mpirun -x PAT* ./a.out").how.env.contains(&path));
    }
}
