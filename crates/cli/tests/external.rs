//! Tests of external commands: `vshmem WORD` runs `vshmem-WORD` from the `PATH`, if there is one.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output};

/// A directory with programs, which alone is the `PATH`.
struct Programs(PathBuf);

impl Programs {
    fn new(name: &str) -> Programs {
        let directory = std::env::temp_dir().join(format!("vshmem-external-{name}{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        Programs(directory)
    }

    fn add(&self, name: &str, text: &str, mode: u32) {
        let file = self.0.join(name);
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn vshmem(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vshmem"));
        command.args(words).env("PATH", &self.0);
        command
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

const PRINTS_ARGUMENTS: &str = "#!/bin/sh\nprintf '<%s>' \"$@\"\nexit 7\n";

#[test]
fn arguments_and_the_exit_code_are_passed_on() {
    let programs = Programs::new("arguments");
    programs.add("vshmem-weigh", PRINTS_ARGUMENTS, 0o755);
    let done = programs.vshmem(&["weigh", "--help", "a b", "", "--", "-x"]);
    assert_eq!(String::from_utf8_lossy(&done.stdout), "<--help><a b><><--><-x>");
    assert_eq!(done.status.code(), Some(7));
}

#[test]
fn own_commands_come_first() {
    let programs = Programs::new("own");
    for name in ["vshmem-schema", "vshmem-help", "vshmem-completion"] {
        programs.add(name, PRINTS_ARGUMENTS, 0o755);
    }
    for words in [["schema", "ps"], ["help", "ps"], ["completion", "fish"]] {
        assert_eq!(programs.vshmem(&words).status.code(), Some(0), "{words:?}");
    }
}

#[test]
fn without_a_program_the_error_suggests_a_command() {
    let programs = Programs::new("none");
    programs.add("vshmem-shel", PRINTS_ARGUMENTS, 0o644);
    let done = programs.vshmem(&["shel"]);
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(2));
    assert!(said.contains("unrecognized subcommand 'shel'") && said.contains("'shell'"), "{said}");
}

#[test]
fn a_program_that_cannot_be_executed_is_named() {
    let programs = Programs::new("broken");
    programs.add("vshmem-weigh", "#!/no/such/interpreter\n", 0o755);
    let done = programs.vshmem(&["weigh"]);
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(126));
    assert!(said.contains("vshmem-weigh could not be executed"), "{said}");
}

#[test]
fn completions_list_them() {
    let programs = Programs::new("completions");
    programs.add("vshmem-weigh", PRINTS_ARGUMENTS, 0o755);
    programs.add("vshmem-up", PRINTS_ARGUMENTS, 0o755);
    let mut asked = programs.command(&["--", "vshmem", ""]);
    let done = asked.env("_VSHMEM_COMPLETE", "fish").output().unwrap();
    let words = String::from_utf8(done.stdout).unwrap();
    let count = |word: &str| words.lines().filter(|line| line.split('\t').next() == Some(word)).count();
    assert_eq!((count("weigh"), count("up")), (1, 1), "{words}");
}
