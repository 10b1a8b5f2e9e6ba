//! Copies of the host's files in a machine's private layer. An overlay copies a file when a program opens it
//! to write, even if nothing is written, and shows the copy from then on, although the host's file may
//! change.
//!
//! Before commands start, a copy that was not changed here is updated from the host's file. One that was
//! changed here stays, and its user is told if the host's has changed, too.
//!
//! When commands have ended, their user is told which files they have made or changed in directories that
//! were shared to be read: those are in the machine alone, and go with it.

use rustix::fs::{statx, AtFlags, StatxFlags, CWD};
use std::collections::BTreeMap;
use std::fs::{self, File, FileTimes, Metadata};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use vshmem_base::printable;

/// Files that a notice names; the others are counted.
const MAX_NAMED: usize = 4;

/// Directories of files that programs keep for themselves, and make again.
const CACHES: [&str; 1] = ["__pycache__"];

/// A private layer over files of the host.
pub struct Layer {
    /// The host's directories: of what several have, the first one's counts.
    lowers: Vec<File>,
    upper: File,
    at: PathBuf,
}

impl Layer {
    /// The layer of the overlay that will be at `at`, made of these directories, which may go out of sight.
    pub fn new(lowers: &[&Path], upper: &Path, at: PathBuf) -> io::Result<Layer> {
        let lowers = lowers.iter().map(File::open).collect::<io::Result<_>>()?;
        Ok(Layer { lowers, upper: File::open(upper)?, at })
    }

    /// The host's file at this path, and what it is like. An error: there is none, or that can't be known.
    fn host(&self, path: &Path) -> io::Result<(PathBuf, Metadata)> {
        let mut outcome = Err(io::ErrorKind::NotFound.into());
        for lower in &self.lowers {
            let file = path_of_open(lower).join(path);
            match fs::symlink_metadata(&file) {
                Err(why) if why.kind() == io::ErrorKind::NotFound => (),
                looked => {
                    outcome = looked.map(|meta| (file, meta));
                    break;
                }
            }
        }
        outcome
    }
}

/// A file's time: seconds and nanoseconds.
type Time = (i64, i64);

/// The attributes of a file that change with its contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    ino: u64,
    size: u64,
    mtime: Time,
    ctime: Time,
}

impl Stamp {
    fn of(meta: &Metadata) -> Stamp {
        Stamp {
            ino: meta.ino(),
            size: meta.size(),
            mtime: (meta.mtime(), meta.mtime_nsec()),
            ctime: (meta.ctime(), meta.ctime_nsec()),
        }
    }
}

/// The state of a file in the layer, as it was seen last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    /// The host had none when this file, by its number, was first seen.
    New(u64),
    /// It is what the host's file was at that time, and has not been touched.
    Copy { host: Stamp, own: Stamp },
    /// It was changed here, when the host's file was so. None: that has changed, too.
    Changed(Option<Stamp>),
}

/// An action on a file in the layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Nothing,
    Refresh,
    Remove,
    Tell,
}

/// The state of a file now, and the action that follows: the file is `own` in the layer, where it was made at
/// the time `born`, and `host` on the host.
fn judge(known: Option<Known>, own: Stamp, born: Time, host: Option<Stamp>) -> (Known, Action) {
    let changed = |then: Option<Stamp>| match host {
        None => (Known::New(own.ino), Action::Nothing),
        Some(_) if then.is_some() && then == host => (Known::Changed(then), Action::Nothing),
        Some(_) => (Known::Changed(then), Action::Tell),
    };
    match (known, host) {
        (Some(Known::New(ino)), _) if ino == own.ino => (Known::New(ino), Action::Nothing),
        (Some(Known::Changed(then)), _) => changed(then),
        (Some(Known::Copy { host: then, own: was }), _) if was != own => changed(Some(then)),
        (Some(copy @ Known::Copy { host: then, .. }), Some(now)) => {
            (copy, if then == now { Action::Nothing } else { Action::Refresh })
        }
        (Some(copy @ Known::Copy { .. }), None) => (copy, Action::Remove),
        // A copy has the time of its original.
        (_, Some(now)) if (now.mtime, now.size) == (own.mtime, own.size) => {
            (Known::Copy { host: now, own }, Action::Nothing)
        }
        (_, Some(now)) => changed(Some(now).filter(|now| now.ctime <= born)),
        (_, None) => changed(None),
    }
}

/// The files in private layers.
#[derive(Default)]
pub struct Copies {
    layers: Vec<Layer>,
    /// The directories that the user has shared.
    shared: Vec<PathBuf>,
    known: BTreeMap<(usize, PathBuf), Known>,
}

/// The aim of a scan of the layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Aim {
    /// Take the files that are there as the machine's own.
    Claim,
    /// Note which copies there are.
    Note,
    /// Update copies from the host's files.
    Refresh,
}

/// A scan of the layers.
struct Scan<'a> {
    layers: &'a [Layer],
    shared: &'a [PathBuf],
    aim: Aim,
    before: BTreeMap<(usize, PathBuf), Known>,
    after: BTreeMap<(usize, PathBuf), Known>,
    /// Those that the user is to be told of.
    told: Vec<PathBuf>,
}

impl Copies {
    /// The files in these layers. Those that are there now are the machine's own. The user has shared these
    /// directories.
    pub fn new(layers: Vec<Layer>, shared: Vec<PathBuf>) -> Copies {
        let mut copies = Copies { layers, shared, known: BTreeMap::new() };
        copies.scan(Aim::Claim);
        copies
    }

    /// Notes which copies there are. To be called while the host's files are still as they were copied.
    /// Returns a notice of files that are new in what is shared.
    pub fn note(&mut self) -> Option<String> {
        let files = listed(&self.scan(Aim::Note))?;
        Some(format!(
            "{files}: written in this machine only, and gone with it. Share the directory to write \
             (vshmem up --rw, or --share DIR:rw), or fetch what was written with vshmem cp"
        ))
    }

    /// Updates copies from the host's files. Returns a notice of those that were changed on both sides.
    pub fn refresh(&mut self) -> Option<String> {
        let files = listed(&self.scan(Aim::Refresh))?;
        Some(format!(
            "the host has changed {files}, which was changed in this machine, too: commands here see the \
             machine's version until it is restarted (vshmem restart)"
        ))
    }

    /// Scans the layers. Returns the files that the user is to be told of.
    fn scan(&mut self, aim: Aim) -> Vec<PathBuf> {
        let before = std::mem::take(&mut self.known);
        let (layers, shared) = (&self.layers, &self.shared);
        let mut scan = Scan { layers, shared, aim, before, after: BTreeMap::new(), told: Vec::new() };
        for layer in 0..self.layers.len() {
            scan.directory(layer, Path::new(""));
        }
        let (known, told) = (scan.after, scan.told);
        self.known = known;
        told
    }
}

/// The names of files, if there are any.
fn listed(files: &[PathBuf]) -> Option<String> {
    if files.is_empty() {
        return None;
    }
    let names: Vec<_> = files.iter().take(MAX_NAMED).map(|path| printable(&path.to_string_lossy())).collect();
    let more = match files.len() - names.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Some(format!("{}{more}", names.join(", ")))
}

/// The path of an open directory.
fn path_of_open(directory: &File) -> PathBuf {
    Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string())
}

impl Scan<'_> {
    /// Scans a directory of the layer, if the host has it, too. Of another one only the name is told.
    fn directory(&mut self, layer: usize, path: &Path) {
        let is_root = path.as_os_str().is_empty();
        if !is_root && !self.layers[layer].host(path).is_ok_and(|(_, meta)| meta.is_dir()) {
            self.new_directory(layer, path);
            return;
        }
        let entries = fs::read_dir(path_of_open(&self.layers[layer].upper).join(path));
        for entry in entries.into_iter().flatten().flatten() {
            let path = path.join(entry.file_name());
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => self.directory(layer, &path),
                Ok(kind) if kind.is_file() => self.file(layer, path),
                _ => (),
            }
        }
    }

    /// Notes a directory that the host does not have.
    fn new_directory(&mut self, layer: usize, path: &Path) {
        let upper = path_of_open(&self.layers[layer].upper).join(path);
        let Ok(meta) = fs::symlink_metadata(&upper) else { return };
        let key = (layer, path.to_owned());
        let known = self.before.remove(&key);
        let now = Known::New(meta.ino());
        if known != Some(now) {
            self.tell_of_new(&self.layers[layer].at.join(path));
        }
        self.after.insert(key, now);
    }

    /// Tells of what commands have made or changed, if the user may miss it.
    fn tell_of_new(&mut self, at: &Path) {
        let is_cache = at.iter().any(|part| CACHES.iter().any(|cache| part == *cache));
        if self.aim == Aim::Note && !is_cache && self.shared.iter().any(|shared| at.starts_with(shared)) {
            self.told.push(at.to_owned());
        }
    }

    fn file(&mut self, layer: usize, path: PathBuf) {
        let upper = path_of_open(&self.layers[layer].upper).join(&path);
        let Ok(own) = fs::symlink_metadata(&upper).map(|meta| Stamp::of(&meta)) else { return };
        let key = (layer, path);
        let known = self.before.remove(&key);
        if self.aim == Aim::Claim || known == Some(Known::New(own.ino)) {
            self.after.insert(key, Known::New(own.ino));
            return;
        }
        let (lower, host) = match self.layers[layer].host(&key.1) {
            Ok((lower, meta)) => (lower, Some(Stamp::of(&meta))),
            Err(why) if why.kind() == io::ErrorKind::NotFound => (PathBuf::new(), None),
            // It can't be known.
            Err(_) => {
                self.after.extend(known.map(|known| (key, known)));
                return;
            }
        };
        let (now, action) = judge(known, own, born(&upper), host);
        let at = self.layers[layer].at.join(&key.1);
        let is_own = |state: Known| matches!(state, Known::New(_) | Known::Changed(_));
        if is_own(now) && !known.is_some_and(is_own) {
            self.tell_of_new(&at);
        }
        let now = match (self.aim, action) {
            (Aim::Claim | Aim::Note, _) | (_, Action::Nothing) => Some(now),
            (_, Action::Tell) => {
                self.told.push(at);
                Some(now)
            }
            (_, Action::Remove) => fs::remove_file(at).is_err().then_some(now),
            (_, Action::Refresh) => match refresh(&lower, &at).and_then(|()| fs::symlink_metadata(&upper)) {
                Ok(meta) => host.map(|host| Known::Copy { host, own: Stamp::of(&meta) }),
                Err(_) => {
                    self.told.push(at);
                    Some(Known::Changed(None))
                }
            },
        };
        self.after.extend(now.map(|now| (key, now)));
    }
}

/// The time at which a file was made; the earliest time if that is not known.
fn born(path: &Path) -> Time {
    match statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BTIME) {
        Ok(it) if it.stx_mask & StatxFlags::BTIME.bits() != 0 => {
            (it.stx_btime.tv_sec, it.stx_btime.tv_nsec.into())
        }
        _ => (i64::MIN, 0),
    }
}

/// Writes a file of the host over its copy. A program that has the copy open sees that, as if it were the
/// host's.
fn refresh(host: &Path, copy: &Path) -> io::Result<()> {
    let open = |options: &mut fs::OpenOptions, path| {
        options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)
    };
    let mut from = open(File::options().read(true), host)?;
    let meta = from.metadata()?;
    if !meta.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut to = open(File::options().write(true).truncate(true), copy)?;
    io::copy(&mut from, &mut to)?;
    to.set_times(FileTimes::new().set_accessed(meta.accessed()?).set_modified(meta.modified()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, SystemTime};

    /// A host's directory and a layer, in which copies are made as an overlay makes them.
    struct Fake {
        root: PathBuf,
        copies: Copies,
    }

    impl Fake {
        fn new(name: &str) -> Fake {
            let root = std::env::temp_dir().join(format!("vshmem-copies-{name}-{}", std::process::id()));
            let (lower, upper) = (root.join("lower"), root.join("upper"));
            for directory in [&lower, &upper] {
                fs::create_dir_all(directory.join("in")).unwrap();
            }
            fs::write(lower.join("in/own"), "the host's").unwrap();
            fs::write(upper.join("in/own"), "of the start").unwrap();
            let layer = Layer::new(&[&lower], &upper, upper.clone()).unwrap();
            let copies = Copies::new(vec![layer], vec![upper.join("in")]);
            Fake { root, copies }
        }

        /// The host's file becomes this, some time ago.
        fn host(&self, text: &str, ago: u64) {
            let file = self.root.join("lower/in/file");
            fs::write(&file, text).unwrap();
            let time = SystemTime::now() - Duration::from_secs(ago);
            File::options().write(true).open(file).unwrap().set_modified(time).unwrap();
        }

        fn copy_up(&self) {
            refresh(&self.root.join("lower/in/file"), &{
                let copy = self.root.join("upper/in/file");
                fs::write(&copy, "").unwrap();
                copy
            })
            .unwrap();
        }

        fn own(&self) -> Option<String> {
            fs::read_to_string(self.root.join("upper/in/file")).ok()
        }
    }

    impl Drop for Fake {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.root).unwrap();
        }
    }

    #[test]
    fn a_copy_that_nobody_changed_becomes_what_the_host_has() {
        let mut fake = Fake::new("fresh");
        fake.host("1", 100);
        fake.copy_up();
        fake.copies.note();
        for (text, ago) in [("2", 50), ("3", 100), ("longer", 0)] {
            fake.host(text, ago);
            assert_eq!(fake.copies.refresh(), None);
            assert_eq!(fake.own().as_deref(), Some(text));
        }
        fs::remove_file(fake.root.join("lower/in/file")).unwrap();
        assert_eq!((fake.copies.refresh(), fake.own()), (None, None), "the host has none any more");
    }

    #[test]
    fn a_file_that_was_changed_here_stays_and_the_host_s_change_is_told() {
        let mut fake = Fake::new("both");
        fake.host("1", 100);
        fake.copy_up();
        fake.copies.note();
        fs::write(fake.root.join("upper/in/file"), "mine").unwrap();
        assert_eq!(fake.copies.refresh(), None, "the host's is as it was");
        fake.host("2", 0);
        for _ in 0..2 {
            let notice = fake.copies.refresh().expect("it is told each time");
            assert!(notice.contains("upper/in/file") && !notice.contains("own"), "{notice}");
            assert_eq!(fake.own().as_deref(), Some("mine"));
        }
    }

    #[test]
    fn what_the_host_changed_before_the_copy_was_known_is_told() {
        let mut fake = Fake::new("early");
        fake.host("1", 100);
        fake.copy_up();
        std::thread::sleep(Duration::from_millis(20));
        fake.host("2", 0);
        assert!(fake.copies.refresh().is_some());
    }

    #[test]
    fn what_commands_write_in_what_is_shared_is_told_once() {
        let mut fake = Fake::new("written");
        let inside = fake.root.join("upper/in");
        assert_eq!(fake.copies.note(), None);
        fs::write(inside.join("out.txt"), "result").unwrap();
        fs::create_dir_all(inside.join("run1/deep")).unwrap();
        fs::create_dir(inside.join("__pycache__")).unwrap();
        fs::write(fake.root.join("upper/elsewhere"), "").unwrap();
        let notice = fake.copies.note().expect("it is told");
        assert!(notice.contains("in/out.txt") && notice.contains("in/run1"), "{notice}");
        assert!(!["own", "deep", "pycache", "elsewhere"].iter().any(|no| notice.contains(no)), "{notice}");
        fs::write(inside.join("out.txt"), "another").unwrap();
        assert_eq!(fake.copies.note(), None, "it is the machine's own now");
        fake.host("1", 100);
        fake.copy_up();
        assert_eq!(fake.copies.note(), None, "a copy is nothing new");
        fs::write(inside.join("file"), "mine").unwrap();
        assert!(fake.copies.note().expect("it is told").contains("in/file"));
    }

    #[test]
    fn files_of_the_machine_are_none_of_the_host_s() {
        let mut fake = Fake::new("own");
        fs::write(fake.root.join("upper/in/file"), "new").unwrap();
        fake.copies.note();
        fake.host("of the same name", 0);
        fs::write(fake.root.join("lower/in/own"), "changed").unwrap();
        assert_eq!(fake.copies.refresh(), None);
        assert_eq!(fake.own().as_deref(), Some("new"));
    }
}
