//! The habits of mpirun's users: options like `-host`, `-np 4` and `-x NAME`, which clap would take for
//! several of one letter.

use crate::commands::Cli;
use clap::{ArgAction, Command, CommandFactory};
use std::ffi::{OsStr, OsString};

/// Options of mpiexec's with one dash, and what they are called here.
const HABITS: [(&str, &str); 18] = [
    ("-np", "-n"),
    ("-host", "--host"),
    ("-hosts", "--host"),
    ("-hostfile", "--hostfile"),
    ("-machinefile", "--hostfile"),
    ("-ppn", "--ppn"),
    ("-x", "--env"),
    ("-wdir", "--cwd"),
    ("--wdir", "--cwd"),
    ("-bind-to", "--bind-to"),
    ("-N", "--ppn"),
    ("-npernode", "--ppn"),
    ("--npernode", "--ppn"),
    ("-perhost", "--ppn"),
    ("-wd", "--cwd"),
    ("--wd", "--cwd"),
    ("-prepend-rank", "--label"),
    ("--tag-output", "--label"),
];

/// Options of mpiexec's that say what holds here anyway.
const HOLDING: [&str; 4] = ["--oversubscribe", "--allow-run-as-root", "-envall", "-genvall"];
/// Options of Open MPI's mpiexec that are passed on, with the number of their values.
const PASSED_ON: [(&str, usize); 3] = [("--mca", 2), ("-mca", 2), ("--report-bindings", 0)];

/// Puts the words of a command line as clap takes them, if they are those of `vshmem mpirun`.
pub fn translate(words: Vec<OsString>) -> Vec<OsString> {
    if words.get(1).is_none_or(|word| word != "mpirun") {
        return words;
    }
    let all = Cli::command();
    let command = all.find_subcommand("mpirun").expect("it is a command");
    let mut out = Vec::new();
    let mut words = words.into_iter();
    out.extend(words.by_ref().take(2));
    while let Some(word) = words.next() {
        let text = word.to_str().unwrap_or_default();
        if text == "--" || !text.starts_with('-') {
            // The rest is the program's.
            out.push("--".into());
            out.extend((text != "--").then_some(word));
            break;
        }
        if HOLDING.contains(&text) {
            continue;
        }
        if let Some((_, count)) = PASSED_ON.iter().find(|(name, _)| *name == text) {
            let values: Vec<OsString> = words.by_ref().take(*count).collect();
            for word in std::iter::once(word).chain(values) {
                out.extend(["--mpiexec-arg".into(), word]);
            }
            continue;
        }
        if text == "-env" || text == "-genv" {
            if let (Some(name), Some(value)) = (words.next(), words.next()) {
                out.extend(["--env".into(), joined(&name, &value)]);
            }
            continue;
        }
        let habit = HABITS.iter().find(|(habit, _)| *habit == text);
        let name = habit.map_or(text, |(_, name)| name);
        if let Some((letter, rest)) = text.split_at_checked(2).filter(|(_, rest)| !rest.is_empty()) {
            if habit.is_none() && takes_value(command, letter) {
                out.extend([letter.into(), rest.into()]);
                continue;
            }
        }
        let value = if takes_value(command, name) { words.next() } else { None };
        match value {
            // Without a value, a variable keeps the one that it has.
            Some(variable) if text == "-x" && !variable.as_encoded_bytes().contains(&b'=') => {
                if let Some(value) = std::env::var_os(&variable) {
                    out.extend([name.into(), joined(&variable, &value)]);
                }
            }
            value => out.extend(std::iter::once(name.into()).chain(value)),
        }
    }
    out.extend(words);
    out
}

fn joined(name: &OsStr, value: &OsStr) -> OsString {
    let mut out = name.to_os_string();
    out.push("=");
    out.push(value);
    out
}

/// Whether the word behind this option belongs to it.
fn takes_value(command: &Command, option: &str) -> bool {
    let named = command.get_arguments().find(|argument| match option.strip_prefix("--") {
        Some(long) => {
            argument.get_long_and_visible_aliases().is_some_and(|all| all.contains(&long))
                || argument.get_all_aliases().is_some_and(|all| all.contains(&long))
        }
        None => {
            let mut letters = option.chars().skip(1);
            letters.next() == argument.get_short()
                && argument.get_short().is_some()
                && letters.next().is_none()
        }
    });
    named.is_some_and(|argument| matches!(argument.get_action(), ArgAction::Set | ArgAction::Append))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::Command as Parsed;
    use crate::mpirun::args::Mpirun;
    use clap::Parser;

    fn parse(line: &str) -> Mpirun {
        let words = line.split(' ').map(OsString::from).collect();
        let words = translate(words);
        let Parsed::Mpirun(mpirun) = Cli::try_parse_from(words).unwrap_or_else(|e| panic!("{e}")).command
        else {
            panic!("mpirun was asked for")
        };
        *mpirun
    }

    #[test]
    fn habits_are_understood() {
        let got = parse("vshmem mpirun -np 4 -host a:2,b:2 -x A=1 -wdir /tmp ./a.out -host x -np 2");
        assert_eq!((got.ranks, got.host.as_deref()), (Some(4), Some("a:2,b:2")));
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
    fn other_commands_are_left_alone() {
        let words: Vec<OsString> = ["vshmem", "run", "-np", "2"].map(Into::into).into();
        assert_eq!(translate(words.clone()), words);
    }

    #[test]
    fn variables_without_a_value_keep_their_own() {
        let got = parse("vshmem mpirun -x PATH -x VSHMEM_NO_SUCH ./a.out");
        assert_eq!(got.how.env, [format!("PATH={}", std::env::var("PATH").unwrap())]);
    }
}
