//! The templates of a user, in a directory of the user's cache that nobody else can enter.
//!
//! A template is a directory, called by the hash of its key, with three files: `memory`, `state`, and
//! `template.json`, which says what it is and what the others hold. It is put together under another name and
//! then renamed. A key that could not be made a template of stands there, too, with the reason: it is tried
//! again after an hour.

use super::key::{hash, Key};
use super::{memory, Template};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use vshmem_base::directories::{boot_id, cache_directory, private_directory};
use vshmem_base::error::{error, Explain, Result};
use vshmem_base::interrupt;
use vshmem_base::lock::{self, Lock};

/// The version of what is kept.
const VERSION: u32 = 1;
/// Bytes on disk that a user's templates may take. The ones go that were not used for the longest time.
pub const MOST_BYTES: u64 = 2 << 30;
/// Bytes of a state without memory: devices and processors have some hundred kilobytes.
pub const MOST_STATE: u64 = 64 << 20;
/// Bytes of a description.
const MOST_TEXT: u64 = 1 << 20;
/// Time that another command may take to make a template.
const WAIT: Duration = Duration::from_secs(90);
/// Seconds after which what could not be made is tried again.
const RETRY: u64 = 3600;

const DESCRIPTION: &str = "template.json";
const MEMORY: &str = "memory";
const STATE: &str = "state";

/// A template on disk, as its description says it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// The version of this.
    version: u32,
    /// The text of its key.
    key: String,
    /// Virtual cores of its machines.
    pub cpus: u32,
    /// Memory of its machines, in bytes.
    pub memory: u64,
    /// Its accelerator.
    pub accel: String,
    /// The kernel, as its users know it.
    pub kernel: String,
    /// The time at which it was made, in seconds since 1970.
    pub made: u64,
    /// The reason why there is none, if there is none.
    #[serde(default)]
    pub failed: Option<String>,
    /// A hash of what is in the file of its memory, if it has one.
    #[serde(default)]
    memory_hash: Option<String>,
    /// A hash of its state.
    #[serde(default)]
    state_hash: String,
}

/// The machines that a template is for, as people are told.
#[derive(Debug, Clone)]
pub struct Kind {
    /// Virtual cores.
    pub cpus: u32,
    /// Memory in bytes.
    pub memory: u64,
    /// The accelerator.
    pub accel: String,
    /// The kernel's version.
    pub kernel: String,
}

/// A template in a list.
#[derive(Debug, Clone)]
pub struct Listed {
    /// Its name.
    pub id: String,
    /// Its description, unless that can't be read.
    pub kept: Option<Kept>,
    /// Bytes on disk.
    pub bytes: u64,
    /// The time at which it was used last, in seconds since 1970.
    pub used: u64,
}

impl Listed {
    /// Whether machines of this boot of the host may use it.
    pub fn is_current(&self) -> bool {
        let boot = format!("boot: {}", boot_id());
        self.kept.as_ref().is_some_and(|kept| kept.key.lines().any(|line| line == boot))
    }
}

/// What a store has for a key.
pub enum Found {
    /// Nothing.
    Nothing,
    /// A template.
    Template(Template),
    /// The reason why none could be made a while ago.
    Failure(String),
}

/// The directory of a user's templates.
pub struct Store(PathBuf);

impl Store {
    /// The user's store.
    pub fn open() -> Result<Store> {
        Ok(Store(cache_directory()?.join("templates")))
    }

    /// Waits until no other command makes, uses or removes the template of this name. The directory is made
    /// if need be.
    pub fn hold(&self, id: &str) -> Result<Lock> {
        private_directory(&self.0)?;
        let held = interrupt::wait_for(WAIT, || self.try_hold(id))?;
        held.ok_or_else(|| lock::busy(&format!("the template {id}")))
    }

    fn try_hold(&self, id: &str) -> Result<Option<Lock>> {
        lock::lock_at(&self.0.join(format!("{id}.lock")))
    }

    /// What it has for this key. An error: it is damaged.
    pub fn get(&self, key: &Key, _held: &Lock) -> Result<Found> {
        let directory = self.0.join(key.id());
        if !directory.exists() {
            return Ok(Found::Nothing);
        }
        let kept = read_description(&directory)?;
        if Key::of_text(&kept.key) != *key {
            return Err(error!("the template in {} is for other machines", directory.display()));
        }
        if let Some(why) = kept.failed {
            let is_old = vshmem_agent::now().saturating_sub(kept.made) > RETRY;
            return Ok(if is_old { Found::Nothing } else { Found::Failure(why) });
        }
        let damaged = |what: &str| error!("the {what} of the template in {} is damaged", directory.display());
        // It may have the memory in it.
        let state = read(&directory.join(STATE), MOST_STATE.saturating_add(kept.memory))?;
        if hash(&state) != kept.state_hash {
            return Err(damaged("state"));
        }
        let memory = kept.memory_hash.map(|hash| {
            let failed = || format!("could not load the memory of the template in {}", directory.display());
            let file = open(&directory.join(MEMORY))?;
            if file.metadata().explain(failed)?.len() != kept.memory {
                return Err(damaged("memory"));
            }
            let copied = memory::create(kept.memory).explain(failed)?;
            if memory::copy(&file, &copied).explain(failed)? != hash {
                return Err(damaged("memory"));
            }
            memory::seal(&copied).explain(failed)?;
            Ok(copied)
        });
        let memory = memory.transpose()?;
        // The last use is what it is ordered by. It is only a hint.
        let _ = touch(&directory.join(DESCRIPTION));
        Ok(Found::Template(Template { memory, state }))
    }

    /// Keeps a template, or the reason why there is none. Others go if together they take too much.
    pub fn put(
        &self,
        key: &Key,
        kind: Kind,
        made: &std::result::Result<Template, String>,
        _held: &Lock,
    ) -> Result<()> {
        self.tidy();
        let id = key.id();
        let new = self.0.join(format!("{id}.{}.new", std::process::id()));
        let failed = || format!("could not keep a template in {}", self.0.display());
        let written = || -> Result<()> {
            fs::DirBuilder::new().mode(0o700).create(&new).explain(failed)?;
            let create = |name: &str| {
                File::options().create_new(true).write(true).mode(0o600).open(new.join(name)).explain(failed)
            };
            let (mut memory_hash, mut state_hash) = (None, String::new());
            if let Ok(template) = made {
                if let Some(memory) = &template.memory {
                    let file = create(MEMORY)?;
                    file.set_len(kind.memory).explain(failed)?;
                    memory_hash = Some(memory::copy(memory, &file).explain(failed)?);
                }
                io::Write::write_all(&mut create(STATE)?, &template.state).explain(failed)?;
                state_hash = hash(&template.state);
            }
            let kept = Kept {
                version: VERSION,
                key: key.text().into(),
                cpus: kind.cpus,
                memory: kind.memory,
                accel: kind.accel,
                kernel: kind.kernel,
                made: vshmem_agent::now(),
                failed: made.as_ref().err().cloned(),
                memory_hash,
                state_hash,
            };
            serde_json::to_writer_pretty(create(DESCRIPTION)?, &kept)
                .map_err(|error| error!("{}: {error}", failed()))?;
            let place = self.0.join(&id);
            let _ = fs::remove_dir_all(&place);
            fs::rename(&new, &place).explain(failed)
        };
        let outcome = written();
        if outcome.is_err() {
            let _ = fs::remove_dir_all(&new);
        }
        outcome?;
        self.bound(MOST_BYTES, Some(&id));
        Ok(())
    }

    /// The templates, in the order of their last use, the latest first.
    pub fn list(&self) -> Result<Vec<Listed>> {
        let entries = match fs::read_dir(&self.0) {
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
            read => read.explain(|| format!("reading {}", self.0.display()))?,
        };
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let mut all: Vec<Listed> = names.filter(|name| is_id(name)).map(|id| self.look(id)).collect();
        all.sort_by(|a, b| b.used.cmp(&a.used).then(a.id.cmp(&b.id)));
        Ok(all)
    }

    fn look(&self, id: String) -> Listed {
        let directory = self.0.join(&id);
        let files = [DESCRIPTION, MEMORY, STATE].map(|name| fs::symlink_metadata(directory.join(name)));
        let bytes = files.iter().flatten().map(|meta| meta.blocks() * 512).sum();
        let used = files[0].as_ref().map_or(0, |meta| meta.mtime().max(0) as u64);
        Listed { kept: read_description(&directory).ok(), id, bytes, used }
    }

    /// Removes a template. Machines that have thawed from it go on.
    pub fn remove(&self, id: &str, _held: &Lock) -> Result<()> {
        let directory = self.0.join(id);
        fs::remove_dir_all(&directory).explain(|| format!("could not remove {}", directory.display()))?;
        let _ = fs::remove_file(self.0.join(format!("{id}.lock")));
        Ok(())
    }

    /// Removes what was left by commands that were killed, and templates of earlier boots of the host.
    fn tidy(&self) {
        for entry in fs::read_dir(&self.0).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let Some(maker) = name.strip_suffix(".new").and_then(|name| name.rsplit_once('.')) else {
                continue;
            };
            let runs = maker.1.parse::<i32>().is_ok_and(|pid| Path::new(&format!("/proc/{pid}")).exists());
            if !runs {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        for old in self.list().unwrap_or_default().iter().filter(|listed| !listed.is_current()) {
            self.try_remove(&old.id);
        }
    }

    /// Removes templates until they take at most so many bytes, the one of this name not.
    fn bound(&self, most: u64, kept: Option<&str>) {
        let mut sum = 0;
        for listed in self.list().unwrap_or_default() {
            sum += listed.bytes;
            if sum > most && Some(&*listed.id) != kept {
                sum -= listed.bytes;
                self.try_remove(&listed.id);
            }
        }
    }

    /// Removes a template that nobody is at work on.
    fn try_remove(&self, id: &str) {
        if let Ok(Some(held)) = self.try_hold(id) {
            let _ = self.remove(id, &held);
        }
    }
}

fn is_id(name: &str) -> bool {
    name.len() == 32 && name.bytes().all(|c| c.is_ascii_hexdigit())
}

fn read_description(directory: &Path) -> Result<Kept> {
    let file = directory.join(DESCRIPTION);
    parse(&read(&file, MOST_TEXT)?).map_err(|why| error!("{} is invalid: {why}", file.display()))
}

/// The description in a text.
pub(crate) fn parse(text: &[u8]) -> std::result::Result<Kept, String> {
    let kept: Kept = serde_json::from_slice(text).map_err(|why| why.to_string())?;
    match kept.version {
        VERSION => Ok(kept),
        other => Err(format!("its version is {other}, not {VERSION}")),
    }
}

/// Opens a file that nobody but this user can have written.
fn open(path: &Path) -> Result<File> {
    let failed = || format!("could not open {}", path.display());
    let mut options = File::options();
    let file =
        options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path).explain(failed)?;
    let meta = file.metadata().explain(failed)?;
    if !meta.is_file() || meta.uid() != vshmem_base::user::uid() || meta.mode() & 0o022 != 0 {
        return Err(error!("{} is no file that only you can write", path.display()));
    }
    Ok(file)
}

fn read(path: &Path, most: u64) -> Result<Vec<u8>> {
    let mut bytes = vec![];
    let failed = || format!("could not read {}", path.display());
    open(path)?.take(most.saturating_add(1)).read_to_end(&mut bytes).explain(failed)?;
    match bytes.len() as u64 > most {
        true => Err(error!("{} is too long", path.display())),
        false => Ok(bytes),
    }
}

fn touch(path: &Path) -> io::Result<()> {
    File::options().append(true).open(path)?.set_modified(SystemTime::now())
}

#[cfg(test)]
mod tests;
