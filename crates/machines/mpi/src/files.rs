//! The programs and libraries that a job's ranks run: files of this host, which its machines see as well, or
//! those of a container, which a command prefix reaches.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Bytes of the longest output that is taken: hosts are not trusted.
const MOST_PRINTED: u64 = 16 << 20;
/// Bytes of the longest file that is read by a command: Debian's libmpich.so.12 has 40 MiB.
const MOST_READ: u64 = 256 << 20;

/// Prints the absolute path of the program $1, looked for from the directory $2. Not by `command -v`, which
/// knows some as the shell's own.
const LOCATE: &str = r#"cd -- "$2" || exit
name=$1
case $name in
*/*) set -- "$name" ;;
*)
    set -f --
    IFS=:
    for directory in $PATH; do set -- "$@" "${directory:-.}/$name"; done
    ;;
esac
for file; do
    [ -f "$file" ] && [ -x "$file" ] || continue
    case $file in /*) echo "$file" ;; *) echo "$(pwd)/$file" ;; esac
    exit
done
exit 1"#;

/// A host's files, and the commands that look at them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Files {
    /// This host, from a directory.
    Host {
        /// The directory.
        from: PathBuf,
        /// Variables that commands get.
        variables: Vec<(OsString, OsString)>,
    },
    /// A host that a command reaches.
    Reached(Prefix),
}

/// The prefix of commands that reach a host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prefix {
    /// Its words, like `podman exec -i NAME`.
    pub words: Vec<OsString>,
    /// It gives what follows to a shell, as ssh does.
    pub by_shell: bool,
    /// The directory from which programs are looked for; `None`: the one in which commands start there.
    pub from: Option<PathBuf>,
    /// Variables that commands get there.
    pub variables: Vec<(OsString, OsString)>,
}

impl Prefix {
    /// The command that runs these words there.
    pub fn command(&self, words: &[&OsStr]) -> Command {
        let assigned = self.variables.iter().map(|(name, value)| [&**name, &**value].join("=".as_ref()));
        let env = (!self.variables.is_empty()).then(|| "env".into());
        let words = env.into_iter().chain(assigned).chain(words.iter().map(|word| (*word).to_owned()));
        let put = |word: OsString| if self.by_shell { quoted(&word) } else { word };
        command(self.words.iter().cloned().chain(words.map(put)))
    }
}

fn command(words: impl IntoIterator<Item = OsString>) -> Command {
    let mut words = words.into_iter();
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words);
    command
}

/// A word as a shell takes it. One with a zero byte can't be quoted, and no command takes it.
fn quoted(word: &OsStr) -> OsString {
    shlex::bytes::try_quote(word.as_bytes())
        .map_or_else(|_| word.to_owned(), |quoted| OsString::from_vec(quoted.into_owned()))
}

impl Files {
    /// This host, from this directory.
    pub fn host(from: impl Into<PathBuf>) -> Files {
        Files::Host { from: from.into(), variables: vec![] }
    }

    /// The program that a command names, as `execvp` finds it.
    pub fn locate(&self, command: &OsStr) -> Option<PathBuf> {
        match self {
            Files::Host { from, .. } => locate(command, from),
            Files::Reached(prefix) => {
                let from = prefix.from.as_deref().unwrap_or(Path::new("."));
                let words = ["sh", "-c", LOCATE, "sh"].map(OsStr::new);
                self.line(&[&words[..], &[command, from.as_os_str()]].concat())
            }
        }
    }

    /// The first of these files that is a program.
    pub fn first_program(&self, files: impl IntoIterator<Item = PathBuf>) -> Option<PathBuf> {
        files.into_iter().find(|file| self.locate(file.as_os_str()).is_some())
    }

    /// A file's bytes; `None`: it does not exist, or can't be read.
    pub fn read(&self, file: &Path) -> Option<Vec<u8>> {
        match self {
            Files::Host { .. } => fs::read(file).ok(),
            Files::Reached(_) => self.printed(&["cat".as_ref(), file.as_os_str()], MOST_READ),
        }
    }

    /// A file's path without links.
    pub fn resolve(&self, file: &Path) -> Option<PathBuf> {
        match self {
            Files::Host { .. } => file.canonicalize().ok(),
            Files::Reached(_) => self.line(&["readlink".as_ref(), "-f".as_ref(), file.as_os_str()]),
        }
    }

    /// The libraries that would be loaded with a file, as the program loader finds them.
    pub fn libraries(&self, loader: &Path, file: &Path) -> Option<Vec<PathBuf>> {
        let listed = self.output(&[loader.as_os_str(), "--list".as_ref(), file.as_os_str()])?;
        Some(listed_files(&listed))
    }

    /// The output of a command there, if it succeeds and prints no more than a list or a log has.
    pub fn output(&self, words: &[&OsStr]) -> Option<Vec<u8>> {
        self.printed(words, MOST_PRINTED)
    }

    fn printed(&self, words: &[&OsStr], most: u64) -> Option<Vec<u8>> {
        let mut command = match self {
            Files::Host { .. } => command(words.iter().map(|word| (*word).to_owned())),
            Files::Reached(prefix) => prefix.command(words),
        };
        if let Files::Host { from, variables } = self {
            command.current_dir(from).envs(variables.iter().map(|(name, value)| (name, value)));
        }
        printed(command.stderr(Stdio::null()), most).ok()
    }

    /// The path that a command prints there.
    fn line(&self, words: &[&OsStr]) -> Option<PathBuf> {
        let printed = self.output(words)?;
        let line = printed.strip_suffix(b"\n").unwrap_or(&printed);
        (!line.is_empty()).then(|| OsStr::from_bytes(line).into())
    }
}

/// The output of a command that succeeds and prints no more bytes than this. It gets no input.
///
/// # Errors
/// It can't be started, fails, or prints more.
pub fn printed(command: &mut Command, most: u64) -> io::Result<Vec<u8>> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let mut printed = Vec::new();
    let read = child.stdout.take().map(|out| out.take(most + 1).read_to_end(&mut printed)).transpose();
    let is_whole = read.is_ok() && printed.len() as u64 <= most;
    if !is_whole {
        child.kill()?;
    }
    match child.wait()?.success() && is_whole {
        true => Ok(printed),
        false => Err(io::Error::other("it failed")),
    }
}

/// The program of this host that a command names, as `execvp` finds it from this directory.
pub fn locate(command: &OsStr, from: &Path) -> Option<PathBuf> {
    if command.as_bytes().contains(&b'/') {
        return Some(from.join(command)).filter(|file| is_program(file));
    }
    let path = std::env::var_os("PATH").unwrap_or("/usr/local/bin:/usr/bin:/bin".into());
    let all = std::env::split_paths(&path).map(|directory| from.join(directory).join(command));
    all.into_iter().find(|file| is_program(file))
}

/// True if a file's bytes have this text among them.
pub fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

/// True if somebody may run a file.
pub fn is_program(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
}

/// The interpreter of a script that begins so: the word after `#!`, or after env(1) there.
pub fn script_interpreter(bytes: &[u8]) -> Option<OsString> {
    let line = bytes.strip_prefix(b"#!")?.split(|b| *b == b'\n').next()?;
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let first = words.next()?;
    let is_word = |word: &&[u8]| !word.starts_with(b"-") && !word.contains(&b'=');
    let word = if first.ends_with(b"/env") { words.find(is_word)? } else { first };
    Some(OsString::from_vec(word.to_vec()))
}

/// The files in the loader's list of the libraries that it loads with a program.
pub fn listed_files(list: &[u8]) -> Vec<PathBuf> {
    String::from_utf8_lossy(list).lines().filter_map(listed_file).collect()
}

/// The file in a line of that list: `libc.so.6 => /lib/libc.so.6 (0x...)`, or without the first half.
fn listed_file(line: &str) -> Option<PathBuf> {
    let file = line.rsplit("=> ").next()?;
    let file = file.rsplit_once(" (")?.0.trim();
    file.starts_with('/').then(|| file.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(words: &[&str]) -> Prefix {
        Prefix { words: words.iter().map(Into::into).collect(), ..Prefix::default() }
    }

    /// `env` is a prefix that reaches this host.
    fn both() -> [Files; 2] {
        [Files::host("/"), Files::Reached(prefix(&["env"]))]
    }

    #[test]
    fn both_find_the_same() {
        for files in both() {
            let sh = files.locate("sh".as_ref()).unwrap_or_else(|| panic!("{files:?}"));
            assert!(sh.ends_with("sh") && sh.is_absolute());
            assert_eq!(files.locate("/bin/sh".as_ref()), Some("/bin/sh".into()));
            assert_eq!(files.locate("/etc/passwd".as_ref()), None, "{files:?}");
            assert_eq!(files.locate("no-such-program".as_ref()), None);
            assert!(files.locate("true".as_ref()).is_some_and(|file| file.is_absolute()), "{files:?}");
            let there = ["/no/such".into(), "/bin/sh".into()];
            assert_eq!(files.first_program(there), Some("/bin/sh".into()));
            assert_eq!(files.read("/etc/hostname".as_ref()), fs::read("/etc/hostname").ok());
            assert_eq!(files.read("/no/such".as_ref()), None);
            assert_eq!(files.resolve("/proc/self/../cpuinfo".as_ref()), Some("/proc/cpuinfo".into()));
        }
    }

    #[test]
    fn relative_programs_are_found_from_a_directory() {
        let files = Files::Reached(Prefix { from: Some("/bin".into()), ..prefix(&["env"]) });
        assert_eq!(files.locate("./sh".as_ref()), Some("/bin/./sh".into()));
        let nowhere = Files::Reached(Prefix { from: Some("/no/such".into()), ..prefix(&["env"]) });
        assert_eq!(nowhere.locate("./sh".as_ref()), None);
    }

    #[test]
    fn words_pass_a_shell_unchanged() {
        // Like ssh: the words are joined, and a shell splits them.
        let joined = Prefix { by_shell: true, ..prefix(&["sh", "-c", r#"eval "$*""#, "sh"]) };
        let files = Files::Reached(joined);
        assert!(files.locate("sh".as_ref()).is_some_and(|sh| sh.ends_with("sh")));
        let text = "two  words, 'quotes' and $HOME;";
        let printed = files.output(&["printf".as_ref(), "%s".as_ref(), text.as_ref()]);
        assert_eq!(printed.as_deref(), Some(text.as_bytes()));
    }

    #[test]
    fn commands_get_variables() {
        let variables = vec![("A".into(), "x  y".into()), ("B".into(), "'".into())];
        let shell = Prefix { by_shell: true, ..prefix(&["sh", "-c", r#"eval "$*""#, "sh"]) };
        for it in [prefix(&["env"]), shell] {
            let files = Files::Reached(Prefix { variables: variables.clone(), ..it });
            let printed = files.output(&["sh", "-c", r#"printf '%s%s' "$A" "$B""#].map(OsStr::new));
            assert_eq!(printed.as_deref(), Some(&b"x  y'"[..]), "{files:?}");
        }
    }

    #[test]
    fn libraries_are_longer_than_output() {
        let file = std::env::temp_dir().join(format!("vshmem-mpi-library-{}", std::process::id()));
        fs::File::create(&file).unwrap().set_len(40 << 20).unwrap();
        let lengths = both().map(|files| files.read(&file).map(|bytes| bytes.len()));
        let printed = both()[1].output(&["cat".as_ref(), file.as_os_str()]);
        fs::remove_file(&file).unwrap();
        assert_eq!(lengths, [Some(40 << 20); 2]);
        assert_eq!(printed, None);
    }

    #[test]
    fn interpreters_are_read() {
        let of = |text: &[u8]| script_interpreter(text).map(|it| it.into_string().unwrap());
        assert_eq!(of(b"#!/usr/bin/python3\nimport x"), Some("/usr/bin/python3".into()));
        assert_eq!(of(b"#! /usr/bin/env -S A=b python3 -u\n"), Some("python3".into()));
        assert_eq!(of(b"#!\n"), None);
        assert_eq!(of(b"\x7fELF"), None);
    }

    #[test]
    fn the_loader_s_list_is_read() {
        let file = |line| listed_file(line).map(|file| file.to_string_lossy().into_owned());
        assert_eq!(file("\tlibc.so.6 => /lib/libc.so.6 (0x00007f00)").as_deref(), Some("/lib/libc.so.6"));
        assert_eq!(
            file("\t/lib64/ld-linux-x86-64.so.2 (0x00007f00)").unwrap(),
            "/lib64/ld-linux-x86-64.so.2"
        );
        assert_eq!(file("\t/a b/x.so (0x7f)").as_deref(), Some("/a b/x.so"));
        assert_eq!(file("\tlinux-vdso.so.1 (0x00007fff)"), None);
        assert_eq!(file("\tlibmpi.so.12 => not found"), None);
    }
}
