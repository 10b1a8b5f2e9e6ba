//! The templates that one command uses for the machines that it starts.

use super::key::{hash_of, Key};
use super::store::{Found, Kind, Store};
use super::Template;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use vshmem_base::error::{Error, Result};
use vshmem_base::{interrupt, size};

/// Digits of a template's name that people are told.
pub const SHORT: usize = 8;

/// The templates of a command. Each is loaded or made once, also for machines that start at once.
pub struct Templates {
    allowed: bool,
    known: Mutex<BTreeMap<String, Option<Arc<Template>>>>,
    /// Of the files that machines boot, which are large and many machines'.
    hashes: Mutex<BTreeMap<PathBuf, String>>,
}

impl Templates {
    /// Templates, unless machines are to boot all the same.
    pub fn new(allowed: bool) -> Templates {
        Templates { allowed, known: Mutex::default(), hashes: Mutex::default() }
    }

    /// Whether machines may thaw.
    pub fn allowed(&self) -> bool {
        self.allowed
    }

    /// Adds to a key what is in a file, which is read once.
    pub fn add_content(&self, key: &mut Key, name: &str, file: &Path) -> Result<()> {
        let mut hashes = self.hashes.lock().unwrap_or_else(PoisonError::into_inner);
        let hash = match hashes.get(file) {
            Some(hash) => hash,
            None => hashes.entry(file.into()).or_insert(hash_of(file)?),
        };
        key.add(name, hash);
        Ok(())
    }

    /// The template of this key, which `make` makes if there is none. `None`: it can't be had, and its
    /// machines boot; `report` is told why, once. An error: the user asks to stop.
    pub fn get(
        &self,
        key: &Key,
        kind: &Kind,
        make: impl FnOnce() -> Result<Template>,
        report: &mut dyn FnMut(String),
    ) -> Result<Option<Arc<Template>>> {
        let id = key.id();
        // Held all the time: the others wait for the one who makes it.
        let mut all = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = all.get(&id) {
            return Ok(known.clone());
        }
        let found = find(key, kind, make, report);
        interrupt::check()?;
        let found =
            found.map(Arc::new).map_err(|why| report(format!("machines boot, without a template: {why}")));
        let found = found.ok();
        all.insert(id, found.clone());
        Ok(found)
    }

    /// Notes that machines can't thaw from a template: it goes. Returns whether that is new.
    pub fn forget(&self, key: &Key) -> bool {
        let id = key.id();
        let mut all = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if all.get(&id).is_some_and(Option::is_none) {
            return false;
        }
        if let Ok(store) = Store::open() {
            let _ = store.hold(&id).and_then(|held| store.remove(&id, &held));
        }
        all.insert(id, None);
        true
    }
}

/// The template in the store, or a new one, which is kept there.
fn find(
    key: &Key,
    kind: &Kind,
    make: impl FnOnce() -> Result<Template>,
    report: &mut dyn FnMut(String),
) -> Result<Template> {
    let (store, id) = (Store::open()?, key.id());
    let held = store.hold(&id)?;
    match store.get(key, &held) {
        Ok(Found::Template(template)) => return Ok(template),
        Ok(Found::Failure(why)) => {
            let hint = format!("To try again: vshmem template rm {}", &id[..SHORT]);
            return Err(Error::new(why).hint(hint));
        }
        Ok(Found::Nothing) => (),
        // A new one takes its place.
        Err(why) => report(format!("{why}; it is made anew")),
    }
    let (cores, memory) = (kind.cpus, size::show(kind.memory));
    let cores = if cores == 1 { "1 core".into() } else { format!("{cores} cores") };
    report(format!("making a template: machines with {cores} and {memory} will not need to boot any more"));
    let made = make();
    interrupt::check()?;
    let made = made.map_err(|why| why.to_string());
    // It serves this command even if it can't be kept.
    if let Err(why) = store.put(key, kind.clone(), &made, &held) {
        report(why.to_string());
    }
    made.map_err(Error::new)
}
