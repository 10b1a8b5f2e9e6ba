//! The command `vshmem cp`: files from and to machines. A machine is not trusted, and may change what lies in
//! a directory that is shared with it: what comes from it is written where the user has said, and nowhere
//! else. Below that place no link is followed.

use crate::args::ClusterArg;
use crate::output::each;
use crate::size;
use clap::{Args, ValueHint};
use rustix::fs::{fchmod, mkdirat, open, openat, renameat, unlinkat, AtFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::umask;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};
use vshmem_base::error::{error, Explain};
use vshmem_base::Result;

#[derive(Args)]
#[command(after_help = "\
Examples:
  vshmem cp vm0:/home/me/work/out.txt .
  vshmem cp -r vm0:results vm1:results /tmp/all
  vshmem cp input.dat vm1:/tmp/

A path of a machine is VM:PATH; a relative one begins in the current directory there, as that of vshmem exec. Files, and
with -r directories, are copied with their modes, less the umask; links are followed. One side is a machine's, the other this host's.")]
pub struct Cp {
    #[command(flatten)]
    pub cluster: ClusterArg,
    /// Copy directories with all that is in them
    #[arg(long, short)]
    pub recursive: bool,
    /// The files, and at the end the file or directory that they are copied to
    #[arg(required = true, num_args = 2.., value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub paths: Vec<String>,
}

/// A place to copy from or to.
#[derive(Debug, PartialEq, Eq)]
enum Place<'a> {
    Here(&'a Path),
    Machine(&'a str, &'a str),
}

impl Place<'_> {
    /// The place of a word: one of a machine has a colon before any slash.
    fn of(word: &str) -> Place<'_> {
        match word.split_once(':') {
            Some((machine, path)) if !machine.is_empty() && !machine.contains('/') => {
                Place::Machine(machine, if path.is_empty() { "." } else { path })
            }
            _ => Place::Here(Path::new(word)),
        }
    }
}

/// Copies files.
pub fn cp(cp: &Cp) -> Result<u8> {
    let (last, sources) = cp.paths.split_last().expect("clap sees to two paths");
    let copy = Copy { cluster: &cp.cluster.cluster, recursive: cp.recursive };
    each(sources, |source| match (Place::of(source), Place::of(last)) {
        (Place::Machine(machine, from), Place::Here(to)) => {
            copy.fetch(machine, from, &below(to, from, sources.len() > 1)?)
        }
        (Place::Here(from), Place::Machine(machine, to)) => copy.send(from, machine, to, sources.len() > 1),
        _ => Err(error!("{source} and {last} are both on one side")
            .hint("A machine's path is VM:PATH: one of the two has to be such.")
            .code(2)),
    })
}

/// The path to copy to: in a directory, under the name that the source has.
fn below(to: &Path, from: &str, several: bool) -> Result<PathBuf> {
    if !to.is_dir() {
        return match several {
            true => Err(error!("{} is no directory, and several files can't be one", to.display()).code(2)),
            false => Ok(to.into()),
        };
    }
    let name = Path::new(from).file_name();
    name.map(|name| to.join(name)).ok_or_else(|| error!("{from} has no name to be copied under").code(2))
}

struct Copy<'a> {
    cluster: &'a str,
    recursive: bool,
}

/// Bytes of the longest list of files that is read of a machine.
const MAX_PRINTED: u64 = 64 << 20;

impl Copy<'_> {
    /// A shell's command in a machine, with these arguments. Its errors are the user's to see.
    fn in_machine(&self, machine: &str, script: &str, words: &[&OsStr]) -> Command {
        let mut command = Command::new("/proc/self/exe");
        command.args(["exec", "-c", self.cluster, machine, "--", "sh", "-c", script, "cp"]).args(words);
        command.stdin(Stdio::null());
        command
    }

    /// The output of a command in a machine, of [`MAX_PRINTED`] bytes at the most.
    fn ask(&self, machine: &str, script: &str, words: &[&OsStr]) -> Result<Vec<u8>> {
        let failed = || "could not start vshmem exec".into();
        let mut child =
            self.in_machine(machine, script, words).stdout(Stdio::piped()).spawn().explain(failed)?;
        let mut printed = Vec::new();
        let mut out = child.stdout.take().expect("it is piped").take(MAX_PRINTED + 1);
        let read = out.read_to_end(&mut printed);
        if printed.len() as u64 > MAX_PRINTED || read.is_err() {
            let _ = child.kill();
        }
        let status = child.wait().explain(failed)?;
        match status.code() {
            _ if printed.len() as u64 > MAX_PRINTED => {
                Err(error!("{machine} prints more than {}", size::show(MAX_PRINTED)))
            }
            Some(0) => Ok(printed),
            code => Err(error!("nothing was copied from or to {machine}").code(failure(code))),
        }
    }

    /// Copies from a machine.
    fn fetch(&self, machine: &str, from: &str, to: &Path) -> Result<()> {
        let source = OsStr::new(from);
        let kind =
            self.ask(machine, "if [ -d \"$1\" ]; then echo directory; else echo file; fi", &[source])?;
        let name = to.file_name().ok_or_else(|| error!("{} is no name of a file", to.display()).code(2))?;
        let parent = to.parent().filter(|parent| !parent.as_os_str().is_empty());
        let place = Directory::open(parent.unwrap_or(Path::new(".")))?;
        if kind != b"directory\n" {
            let mode = self.ask(machine, "stat -L -c %a -- \"$1\"", &[source])?;
            return self.fetch_file(machine, source, octal(mode.trim_ascii()).unwrap_or(0o644), &place, name);
        }
        if !self.recursive {
            return Err(error!("{machine}:{from} is a directory").hint("Copy it with -r.").code(1));
        }
        let is_new = place.make(name)?;
        let top = place.enter(name)?;
        // Directories come before what is in them.
        let list = self.ask(machine, "cd \"$1\" && find -L . -printf '%y%m %P\\0'", &[source])?;
        let mut directories = Vec::new();
        for entry in list.split(|byte| *byte == 0).filter(|entry| !entry.is_empty()) {
            let Listed { kind, mode, path } = Listed::of(entry, machine)?;
            match (kind, path.file_name()) {
                (b'd', name) => {
                    let is_new = match name {
                        Some(name) => top.below(path.parent())?.make(name)?,
                        None => is_new,
                    };
                    directories.extend(is_new.then_some((path, mode)));
                }
                (b'f', Some(name)) => {
                    let from = Path::new(from).join(path);
                    self.fetch_file(machine, from.as_os_str(), mode, &top.below(path.parent())?, name)?;
                }
                _ => (),
            }
        }
        // What is not to be written can be read and entered until it is whole.
        directories.into_iter().rev().try_for_each(|(path, mode)| top.below(Some(path))?.set_mode(mode))
    }

    /// Copies a file of this mode from a machine. It is there whole, or not at all.
    fn fetch_file(
        &self,
        machine: &str,
        from: &OsStr,
        mode: u32,
        place: &Directory,
        name: &OsStr,
    ) -> Result<()> {
        place.write(name, mode & 0o777, |file| {
            let mut command = self.in_machine(machine, "exec cat -- \"$1\"", &[from]);
            let status = command.stdout(file).status().explain(|| "could not start vshmem exec".into())?;
            match status.code() {
                Some(0) => Ok(()),
                code => {
                    let what = error!("{machine}:{} was not copied", Path::new(from).display());
                    Err(what.code(failure(code)))
                }
            }
        })
    }

    /// Copies to a machine.
    fn send(&self, from: &Path, machine: &str, to: &str, several: bool) -> Result<()> {
        let meta = fs::metadata(from).explain(|| format!("could not read {}", from.display()))?;
        let name = from.canonicalize().ok().and_then(|path| path.file_name().map(OsStr::to_owned));
        let name = name.ok_or_else(|| error!("{} has no name to be copied under", from.display()).code(2))?;
        let script = "if [ -d \"$1\" ]; then echo directory; fi";
        let into = self.ask(machine, script, &[OsStr::new(to)])? == b"directory\n";
        if several && !into {
            return Err(error!("{machine}:{to} is no directory, and several files can't be one").code(2));
        }
        let to = if into { Path::new(to).join(name) } else { to.into() };
        if meta.is_dir() {
            return self.send_directory(from, machine, &to);
        }
        self.send_file(from, machine, &to)
    }

    fn send_directory(&self, from: &Path, machine: &str, to: &Path) -> Result<()> {
        if !self.recursive {
            return Err(error!("{} is a directory", from.display()).hint("Copy it with -r.").code(1));
        }
        let failed = || format!("could not read {}", from.display());
        let mode = format!("{:o}", fs::metadata(from).explain(failed)?.permissions().mode() & 0o777);
        self.ask(machine, "mkdir -p -- \"$1\"", &[to.as_os_str()])?;
        let entries = fs::read_dir(from).explain(|| format!("could not read {}", from.display()))?;
        for entry in entries {
            let entry = entry.explain(|| format!("could not read {}", from.display()))?;
            let (path, to) = (entry.path(), to.join(entry.file_name()));
            match fs::metadata(&path) {
                Ok(meta) if meta.is_dir() => self.send_directory(&path, machine, &to)?,
                Ok(meta) if meta.is_file() => self.send_file(&path, machine, &to)?,
                _ => (),
            }
        }
        self.ask(machine, "chmod -- \"$2\" \"$1\"", &[to.as_os_str(), OsStr::new(&mode)]).map(drop)
    }

    fn send_file(&self, from: &Path, machine: &str, to: &Path) -> Result<()> {
        let failed = || format!("could not read {}", from.display());
        let file = File::open(from).explain(failed)?;
        let mode = format!("{:o}", file.metadata().explain(failed)?.permissions().mode() & 0o777);
        let script = "cat >\"$1\" && chmod \"$2\" \"$1\"";
        let mut command = self.in_machine(machine, script, &[to.as_os_str(), OsStr::new(&mode)]);
        let status = command.stdin(file).status().explain(|| "could not start vshmem exec".into())?;
        match status.code() {
            Some(0) => Ok(()),
            code => {
                let what = error!("{} was not copied to {machine}:{}", from.display(), to.display());
                Err(what.code(failure(code)))
            }
        }
    }
}

/// An octal number, as commands print modes.
fn octal(digits: &[u8]) -> Option<u32> {
    u32::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()
}

/// A mode without what this process's umask takes away, as of files that it makes.
fn masked(mode: u32) -> Mode {
    let mask = umask(Mode::empty());
    umask(mask);
    Mode::from_raw_mode(mode) - mask
}

/// A file in a directory of a machine, as `find` has printed it there.
struct Listed<'a> {
    kind: u8,
    mode: u32,
    /// Its path in the directory; empty: the directory itself.
    path: &'a Path,
}

impl Listed<'_> {
    /// Of a line such as `d755 a/b`. An error if it names what is not in the directory.
    fn of<'a>(entry: &'a [u8], machine: &str) -> Result<Listed<'a>> {
        let at = entry.iter().position(|byte| *byte == b' ').unwrap_or(0);
        let mode = octal(entry.get(1..at).unwrap_or_default()).unwrap_or(0o700) & 0o777;
        let path = Path::new(OsStr::from_bytes(&entry[(at + 1).min(entry.len())..]));
        match path.components().all(|part| matches!(part, Component::Normal(_))) {
            true => Ok(Listed { kind: entry[0], mode, path }),
            false => Err(error!("{machine} names a file that is not in the directory: {}", path.display())),
        }
    }
}

/// A directory of this host that is written to.
struct Directory {
    open: OwnedFd,
    path: PathBuf,
}

impl Directory {
    /// The directory of this path, as the user has named it.
    fn open(path: &Path) -> Result<Directory> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = open(path, flags, Mode::empty());
        let open = open.explain(|| format!("could not open the directory {}", path.display()))?;
        Ok(Directory { open, path: path.into() })
    }

    /// The directory of this path in it, to which no link leads; without one, itself.
    fn below(&self, path: Option<&Path>) -> Result<Directory> {
        let open = self.open.try_clone().explain(|| "there are too many open files".into())?;
        let itself = Directory { open, path: self.path.clone() };
        path.unwrap_or(Path::new("")).iter().try_fold(itself, |place, part| place.enter(part))
    }

    fn set_mode(&self, mode: u32) -> Result<()> {
        let failed = || format!("could not change the mode of {}", self.path.display());
        fchmod(&self.open, masked(mode)).explain(failed)
    }

    /// The directory of this name in it, which is no link.
    fn enter(&self, name: &OsStr) -> Result<Directory> {
        let path = self.path.join(name);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = openat(&self.open, name, flags, Mode::empty());
        let open = open.explain(|| format!("could not open the directory {}", path.display()))?;
        Ok(Directory { open, path })
    }

    /// Makes a directory in it for this user alone. False: there is something of that name.
    fn make(&self, name: &OsStr) -> Result<bool> {
        match mkdirat(&self.open, name, Mode::from_raw_mode(0o700)) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            Err(why) => Err(error!("could not make {}: {why}", self.path.join(name).display())),
        }
    }

    /// Writes a file in it, under another name until it is whole.
    fn write(&self, name: &OsStr, mode: u32, contents: impl FnOnce(File) -> Result<()>) -> Result<()> {
        let failed = || format!("could not write {}", self.path.join(name).display());
        let part = OsString::from(format!(".vshmem-cp-{}", std::process::id()));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(openat(&self.open, &part, flags, Mode::from_raw_mode(0o600)).explain(failed)?);
        let done = file.try_clone().explain(failed).and_then(contents).and_then(|()| {
            fchmod(&file, masked(mode)).explain(failed)?;
            renameat(&self.open, &part, &self.open, name).explain(failed)
        });
        if done.is_err() {
            let _ = unlinkat(&self.open, &part, AtFlags::empty());
        }
        done
    }
}

/// The exit code of a copy whose command ended so: Vshmem's own failures are passed on.
fn failure(code: Option<i32>) -> u8 {
    match code {
        Some(125) => 125,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_s_path_has_a_colon_before_any_slash() {
        assert_eq!(Place::of("vm0:/a:b"), Place::Machine("vm0", "/a:b"));
        assert_eq!(Place::of("vm0:"), Place::Machine("vm0", "."));
        assert_eq!(Place::of("./vm0:a"), Place::Here(Path::new("./vm0:a")));
        assert_eq!(Place::of("a"), Place::Here(Path::new("a")));
        assert_eq!(Place::of(":a"), Place::Here(Path::new(":a")));
    }

    #[test]
    fn no_link_is_followed_below_the_place() {
        let root = std::env::temp_dir().join(format!("vshmem-cp-{}", std::process::id()));
        fs::create_dir_all(root.join("away")).unwrap();
        std::os::unix::fs::symlink("away", root.join("link")).unwrap();
        let place = Directory::open(&root).unwrap();
        let text = |text: &'static str| {
            move |mut file: File| std::io::Write::write_all(&mut file, text.as_bytes()).explain(String::new)
        };
        assert!(place.enter("link".as_ref()).is_err() && !place.make("link".as_ref()).unwrap());
        assert!(place.make("own".as_ref()).unwrap() && !place.make("own".as_ref()).unwrap());
        place.enter("own".as_ref()).unwrap().write("f".as_ref(), 0o640, text("a")).unwrap();
        let meta = fs::metadata(root.join("own/f")).unwrap();
        assert_eq!((meta.permissions().mode() & 0o777, meta.len()), (0o640, 1));
        // A file that is a link is replaced.
        std::os::unix::fs::symlink("away/x", root.join("name")).unwrap();
        place.write("name".as_ref(), 0o644, text("bc")).unwrap();
        assert!(!root.join("away/x").exists() && fs::read(root.join("name")).unwrap() == b"bc");
        assert!(place.write("bad".as_ref(), 0o644, |_| Err(error!("no"))).is_err());
        assert_eq!(fs::read_dir(&root).unwrap().count(), 4, "nothing is left of what failed");
        place.below(Some(Path::new("own"))).unwrap().set_mode(0o750).unwrap();
        assert_eq!(fs::metadata(root.join("own")).unwrap().permissions().mode() & 0o777, 0o750);
        assert!(place.below(Some(Path::new("own/../link"))).is_err());
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn what_a_machine_lists_is_in_the_directory() {
        let read = |entry: &'static str| {
            let listed = Listed::of(entry.as_bytes(), "vm0").ok()?;
            Some((listed.kind, listed.mode, listed.path.to_str()?))
        };
        assert_eq!(read("d755 "), Some((b'd', 0o755, "")));
        assert_eq!(read("f4640 a/b c"), Some((b'f', 0o640, "a/b c")));
        assert_eq!(read("fx a"), Some((b'f', 0o700, "a")));
        for liar in ["f644 ../evil", "f644 /etc/passwd", "d755 a/../../b", "f644 ."] {
            assert_eq!(read(liar), None, "{liar}");
        }
        assert!(Listed::of(b"f", "vm0").is_ok_and(|listed| listed.path == Path::new("")));
    }

    #[test]
    fn a_directory_takes_a_file_under_its_name() {
        assert_eq!(below(Path::new("/tmp"), "a/b", false).unwrap(), Path::new("/tmp/b"));
        assert_eq!(below(Path::new("/nosuch"), "a/b", false).unwrap(), Path::new("/nosuch"));
        assert!(below(Path::new("/nosuch"), "a/b", true).is_err());
        assert!(below(Path::new("/tmp"), "..", false).is_err());
    }
}
