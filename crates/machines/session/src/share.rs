//! The files of this host that machines see: the system's programs and libraries, and shared directories.

use percent_encoding::{percent_decode_str, percent_encode, AsciiSet, NON_ALPHANUMERIC};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};
use vshmem_base::directories::runtime_directory;
use vshmem_base::error::{Error, Result};
use vshmem_base::{library, user};

/// The 9p mount tag of the files that machines see.
pub const ROOT_TAG: &str = "root";
/// The 9p mount tag of the files that machines can write to.
pub const WRITABLE_TAG: &str = "writable";

/// The system's programs, libraries and configuration. `/usr/local` may be a file system of its own.
pub const SYSTEM: [&str; 10] =
    ["/bin", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/sbin", "/usr", "/usr/local"];

/// A directory or file of this host that machines see at the same path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// A path without symbolic links.
    pub path: PathBuf,
    /// Machines can write to it.
    pub writable: bool,
}

/// Directories that machines have of their own.
const MACHINE_OWN: [&str; 3] = ["/dev", "/proc", "/sys"];
/// Directories that are only shared on request, because other programs have private files below them.
const PRIVATE: [&str; 8] = ["/boot", "/dev", "/proc", "/run", "/sys", "/var/lib", "/var/log", "/var/spool"];
/// Directories that are only shared on request, as are their parents.
const BROAD: [&str; 9] = ["/dev/shm", "/home", "/media", "/mnt", "/root", "/run", "/srv", "/tmp", "/var/tmp"];
/// Directories of the system in which people work. Below these, the current directory is shared where
/// machines would otherwise see it as it was.
const WORKED_IN: [&str; 3] = ["/opt", "/usr/local", "/usr/src"];
/// Bytes that paths can take on the kernel's command line.
const MAX_PATHS_LENGTH: usize = 1200;

impl Share {
    fn new(path: PathBuf) -> Share {
        Share { path, writable: false }
    }

    /// Parses `DIR`, `DIR:ro` or `DIR:rw`.
    pub fn parse(text: &str) -> Result<Share> {
        let refused = |what: String| Err(Error::new(what).code(2));
        let (directory, writable) = match text.rsplit_once(':') {
            Some((directory, "rw")) => (directory, true),
            Some((directory, "ro")) => (directory, false),
            _ => (text, false),
        };
        let path = match fs::canonicalize(directory) {
            Ok(path) if path.is_dir() => path,
            Ok(_) => return refused(format!("--share {text}: {directory} is no directory")),
            Err(e) => return refused(format!("--share {text}: {directory}: {e}")),
        };
        if path.to_str().is_none() {
            return refused(format!("--share {text}: a path that is shared must be UTF-8"));
        }
        if path.parent().is_none() || MACHINE_OWN.iter().any(|own| path.starts_with(own)) {
            return refused(format!(
                "{} can't be shared: machines have /dev, /proc and /sys of their own, and of the rest what is named",
                path.display()
            ));
        }
        if is_closed(&path) {
            return refused(format!(
                "{} can't be shared: machines that root starts see what everybody can read, and not everybody can enter it",
                path.display()
            ))
            .map_err(|error| error.hint("Open it with chmod o+rx, or start the machines as an ordinary user."));
        }
        let runtime = runtime_directory()?;
        // Write access to the parent directory would allow to replace it.
        if path.starts_with(&runtime) || writable && runtime.starts_with(&path) {
            return refused(format!(
                "{} can't be shared{}: machines are controlled by what lies in {}",
                path.display(),
                if writable { " to write" } else { "" },
                runtime.display()
            ));
        }
        Ok(Share { path, writable })
    }
}

/// The shares of machines: those that the user wants, and those that programs of the current directory need.
/// If they see the system's files as these were (`system_stays`), the current directory also counts there.
pub fn choose(wanted: &[String], system_stays: bool, report: &mut dyn FnMut(&str)) -> Result<Vec<Share>> {
    let mut shares = Vec::new();
    for text in wanted {
        let share = Share::parse(text)?;
        shares.retain(|other: &Share| other.path != share.path);
        shares.push(share);
    }
    let homes = homes();
    if let Ok(here) = std::env::current_dir() {
        let closed =
            is_closed(&here).then_some("not everybody can enter, as machines of root's would have to");
        match why_not(&here, &homes).or(closed) {
            None if system_stays && is_worked_in(&here) => shares.push(Share::new(here)),
            None => add(&mut shares, here),
            Some(_) if is_visible(&shares, &here) => (),
            Some(why) => report(&format!(
                "machines don't see the current directory, which {why}: share what they need with --share"
            )),
        }
    }
    for file in [std::env::current_exe().ok(), library::find().ok()] {
        let Some(file) = file.and_then(|file| file.canonicalize().ok()) else {
            continue;
        };
        match file.parent() {
            Some(directory) if why_not(directory, &homes).is_none() && !is_closed(directory) => {
                add(&mut shares, directory.to_path_buf());
            }
            _ => add(&mut shares, file),
        }
    }
    shares.sort_by(|one, other| one.path.cmp(&other.path));
    let length: usize = shares.iter().map(|share| share.path.as_os_str().len() + 4).sum();
    if length > MAX_PATHS_LENGTH {
        return Err(Error::new("the paths that are shared are too long for a kernel's command line")
            .hint("Share a directory that has others in it, or give them shorter names.")
            .code(2));
    }
    report(&format!("machines see this system's programs{}", list(&shares)));
    Ok(shares)
}

fn list(shares: &[Share]) -> String {
    let mut out = String::new();
    for share in shares {
        let how = if share.writable { " (to write)" } else { "" };
        out.push_str(&format!(", {}{how}", share.path.display()));
    }
    out
}

fn add(shares: &mut Vec<Share>, path: PathBuf) {
    if path.to_str().is_some() && !is_visible(shares, &path) {
        shares.push(Share::new(path));
    }
}

/// Whether people may work in this directory of the system.
fn is_worked_in(here: &Path) -> bool {
    WORKED_IN.iter().map(Path::new).any(|part| here.starts_with(part) && here != part)
}

/// Whether machines see this path, which has no symbolic links.
pub fn is_visible(shares: &[Share], path: &Path) -> bool {
    let system = SYSTEM.iter().any(|part| path.starts_with(part));
    system || shares.iter().any(|share| path.starts_with(&share.path))
}

/// The first file among the words of a command that exists here and that machines with these shares don't
/// see.
pub fn first_invisible(shares: &[Share], here: &Path, words: &[OsString]) -> Option<PathBuf> {
    let is_named = |(index, word): &(usize, &OsString)| *index > 0 || word.as_encoded_bytes().contains(&b'/');
    let named = words.iter().enumerate().filter(is_named);
    let mut files = named.filter_map(|(_, word)| here.join(word).canonicalize().ok());
    files.find(|file| {
        let own = MACHINE_OWN.iter().any(|own| file.starts_with(own));
        file.is_file() && !own && !is_visible(shares, file)
    })
}

/// The home directories of this system's users.
fn homes() -> Vec<PathBuf> {
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let own = std::env::var_os("HOME").map(PathBuf::from);
    let all = passwd.lines().filter_map(|line| line.split(':').nth(5));
    let all = all.map(PathBuf::from).chain(own);
    all.map(|home| home.canonicalize().unwrap_or(home)).collect()
}

/// Whether the user that root's machines run as can't enter a directory.
fn is_closed(directory: &Path) -> bool {
    let open = |meta: fs::Metadata| meta.permissions().mode() & 0o5 == 0o5;
    user::uid() == 0 && !fs::metadata(directory).is_ok_and(open)
}

/// The reason why a directory is only shared on request; `None` if it is shared anyway.
fn why_not(directory: &Path, homes: &[PathBuf]) -> Option<&'static str> {
    let has = |other: &Path| other.starts_with(directory);
    if homes.iter().any(|home| has(home)) {
        return Some("has a home directory in it or is one");
    }
    let wide = BROAD.iter().map(Path::new);
    if wide.chain([std::env::temp_dir().as_path()]).any(has) {
        return Some("has other things in it");
    }
    let is_hidden = |part: Component| part.as_os_str().as_encoded_bytes().starts_with(b".");
    if directory.components().any(is_hidden) {
        return Some("is a hidden one");
    }
    let kept = PRIVATE.iter().any(|kept| directory.starts_with(kept));
    kept.then_some("is the system's")
}

/// Characters of paths that mean nothing else on a kernel's command line.
pub const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'.').remove(b'_').remove(b'-');

/// Shares as one parameter of a kernel.
pub fn encode(shares: &[Share]) -> String {
    let one = |share: &Share| {
        let path = percent_encode(share.path.as_os_str().as_encoded_bytes(), PLAIN);
        format!("{path}{}", if share.writable { ":rw" } else { "" })
    };
    shares.iter().map(one).collect::<Vec<_>>().join(",")
}

/// Shares from such a parameter.
pub fn decode(word: &str) -> Option<Vec<Share>> {
    let parts = word.split(',').filter(|part| !part.is_empty());
    let one = |part: &str| {
        let path = part.strip_suffix(":rw");
        let writable = path.is_some();
        let path = percent_decode_str(path.unwrap_or(part)).decode_utf8().ok()?;
        let path = PathBuf::from(path.into_owned());
        // It comes from the host, which a machine trusts, but it is joined to other paths.
        let plain = path.components().all(|part| part != Component::ParentDir);
        (path.is_absolute() && plain).then_some(Share { path, writable })
    };
    parts.map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_survive_the_command_line() {
        let shares = [("/a b/c,d", true), ("/e:rw", false), ("/ü/%", false)]
            .map(|(path, writable)| Share { path: path.into(), writable });
        let word = encode(&shares);
        assert!(!word.contains(' '), "{word}");
        assert_eq!(decode(&word).unwrap(), shares);
        assert_eq!(decode(""), Some(vec![]));
        for bad in ["a", "/a/../b", "/%ff"] {
            assert_eq!(decode(bad), None, "{bad}");
        }
    }

    #[test]
    fn private_directories_are_only_shared_on_request() {
        let homes = ["/home/me".into(), "/root".into()];
        for wide in [
            "/",
            "/home",
            "/home/me",
            "/root",
            "/tmp",
            "/var",
            "/var/tmp",
            "/run",
            "/dev/shm",
            "/home/me/.ssh",
            "/home/me/.config/x",
            "/proc/1",
            "/run/user/0",
            "/var/lib/x",
            "/dev/shm/x",
            "/mnt",
        ] {
            assert!(why_not(Path::new(wide), &homes).is_some(), "{wide}");
        }
        for fine in ["/home/me/work", "/tmp/x", "/data/x", "/mnt/disk", "/root/work"] {
            assert_eq!(why_not(Path::new(fine), &homes), None, "{fine}");
        }
    }

    #[test]
    fn directories_that_machines_have_themselves_are_refused() {
        for text in ["/", "/proc", "/dev/shm", "/sys/class", "/no/such", "/etc/passwd", "/:rw"] {
            assert_eq!(Share::parse(text).unwrap_err().exit_code(), 2, "{text}");
        }
        let share = Share::parse("/usr/../etc:rw").unwrap();
        assert_eq!((share.path.to_str(), share.writable), (Some("/etc"), true));
        assert!(!Share::parse("/usr:ro").unwrap().writable);
    }

    #[test]
    fn invisible_files_are_found() {
        let directory = std::env::temp_dir().join(format!("vshmem-unseen-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let directory = directory.canonicalize().unwrap();
        fs::write(directory.join("program"), "").unwrap();
        let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        let file = Some(directory.join("program"));
        assert_eq!(first_invisible(&[], &directory, &words(&["./program"])), file);
        assert_eq!(first_invisible(&[], &directory, &words(&["perl", "program"])), file);
        // A command without a slash is looked up in PATH.
        assert_eq!(
            first_invisible(&[], &directory, &words(&["program", "/etc/passwd", "/dev/null", "-x"])),
            None
        );
        assert_eq!(
            first_invisible(&[Share::new(directory.clone())], &directory, &words(&["./program"])),
            None
        );
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn visible_paths_are_known() {
        let shares = [Share::new("/data/x".into())];
        for path in ["/usr/bin/perl", "/etc/passwd", "/data/x", "/data/x/y"] {
            assert!(is_visible(&shares, Path::new(path)), "{path}");
        }
        for path in ["/data", "/data/xy", "/home/me", "/dev/shm/x"] {
            assert!(!is_visible(&shares, Path::new(path)), "{path}");
        }
    }
}
