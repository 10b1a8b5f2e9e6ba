//! The command `vshmem cp`: files from and to machines. A machine is not trusted: this process writes what
//! comes from it where the user has said, and nowhere else.

use crate::args::ClusterArg;
use crate::output::each;
use clap::{Args, ValueHint};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
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
with -r directories, are copied with their modes; links are followed. One side is a machine's, the other this host's.")]
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
            .hint("A machine's path is VM:PATH; one of the two is.")
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

impl Copy<'_> {
    /// A shell's command in a machine, with these arguments. Its errors are the user's to see.
    fn in_machine(&self, machine: &str, script: &str, words: &[&OsStr]) -> Command {
        let mut command = Command::new("/proc/self/exe");
        command.args(["exec", "-c", self.cluster, machine, "--", "sh", "-c", script, "cp"]).args(words);
        command.stdin(Stdio::null());
        command
    }

    /// What a command in a machine prints.
    fn ask(&self, machine: &str, script: &str, words: &[&OsStr]) -> Result<Vec<u8>> {
        let asked = self.in_machine(machine, script, words).stderr(Stdio::inherit()).output();
        let done = asked.explain(|| "could not start vshmem exec".into())?;
        match done.status.code() {
            Some(0) => Ok(done.stdout),
            code => Err(error!("nothing was copied from or to {machine}").code(failure(code))),
        }
    }

    /// Copies from a machine.
    fn fetch(&self, machine: &str, from: &str, to: &Path) -> Result<()> {
        let source = OsStr::new(from);
        let kind =
            self.ask(machine, "if [ -d \"$1\" ]; then echo directory; else echo file; fi", &[source])?;
        if kind != b"directory\n" {
            return self.fetch_file(machine, source, to);
        }
        if !self.recursive {
            return Err(error!("{machine}:{from} is a directory").hint("Copy it with -r.").code(1));
        }
        make_directory(to)?;
        // Directories come before what is in them.
        let list = self.ask(machine, "cd \"$1\" && find -L . -mindepth 1 -printf '%y%P\\0'", &[source])?;
        for entry in list.split(|byte| *byte == 0).filter(|entry| !entry.is_empty()) {
            let (kind, path) = (entry[0], Path::new(OsStr::from_bytes(&entry[1..])));
            if !path.components().all(|part| matches!(part, Component::Normal(_))) {
                return Err(error!(
                    "{machine} names a file that is not in the directory: {}",
                    path.display()
                ));
            }
            match kind {
                b'd' => make_directory(&to.join(path))?,
                b'f' => {
                    self.fetch_file(machine, Path::new(from).join(path).as_os_str(), &to.join(path))?;
                }
                _ => (),
            }
        }
        Ok(())
    }

    /// Copies a file from a machine. It is there whole, or not at all.
    fn fetch_file(&self, machine: &str, from: &OsStr, to: &Path) -> Result<()> {
        let failed = || format!("could not write {}", to.display());
        let part = to.with_file_name(format!(".vshmem-cp-{}", std::process::id()));
        let mut new = File::options();
        let file = new.write(true).create_new(true).custom_flags(libc::O_NOFOLLOW).open(&part);
        let file = file.explain(failed)?;
        // The mode goes ahead of the contents, on a line.
        let mode = self.ask(machine, "stat -L -c %a -- \"$1\"", &[from]);
        let mut command = self.in_machine(machine, "exec cat -- \"$1\"", &[from]);
        let status = mode.and_then(|mode| {
            let status = command.stdout(file).status().explain(|| "could not start vshmem exec".into())?;
            Ok((mode, status.code()))
        });
        let done = status.and_then(|(mode, code)| match code {
            Some(0) => {
                let mode = std::str::from_utf8(&mode).ok();
                let mode = mode.and_then(|mode| u32::from_str_radix(mode.trim(), 8).ok()).unwrap_or(0o644);
                fs::set_permissions(&part, fs::Permissions::from_mode(mode & 0o777)).explain(failed)?;
                fs::rename(&part, to).explain(failed)
            }
            code => Err(error!("{machine}:{} was not copied", Path::new(from).display()).code(failure(code))),
        });
        if done.is_err() {
            let _ = fs::remove_file(&part);
        }
        done
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
        Ok(())
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

fn make_directory(path: &Path) -> Result<()> {
    match fs::create_dir(path) {
        Err(_) if fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir()) => Ok(()),
        made => made.explain(|| format!("could not make {}", path.display())),
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
    fn a_directory_takes_a_file_under_its_name() {
        assert_eq!(below(Path::new("/tmp"), "a/b", false).unwrap(), Path::new("/tmp/b"));
        assert_eq!(below(Path::new("/nosuch"), "a/b", false).unwrap(), Path::new("/nosuch"));
        assert!(below(Path::new("/nosuch"), "a/b", true).is_err());
        assert!(below(Path::new("/tmp"), "..", false).is_err());
    }
}
