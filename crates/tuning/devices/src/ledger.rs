//! Who holds which function, and what was there before: written down before anything is changed, so that it
//! can be put back whatever happens.

use crate::address::Address;
use crate::tree::Tree;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use vshmem_base::error::{error, Explain, Result};

/// The format that this program writes.
const VERSION: u32 = 1;

/// Who holds a function.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The directory of the cluster.
    pub cluster: PathBuf,
    /// The machine.
    pub machine: String,
}

/// A function that is held, and what it was before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// The function.
    pub address: Address,
    /// Its holder.
    pub holder: Holder,
    /// The machine sees it. Otherwise it is held for the sake of others in its group.
    pub given: bool,
    /// Its group.
    pub group: u32,
    /// The driver that it had.
    pub driver: Option<String>,
    /// The only driver that it might get, if that was set.
    pub driver_override: Option<String>,
}

/// Virtual functions that were made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Made {
    /// Of this function.
    pub physical: Address,
    /// So many.
    pub count: u32,
    /// What is to be set again in `sriov_drivers_autoprobe`.
    pub autoprobe: Option<String>,
}

/// The ledger of one boot of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    version: u32,
    boot: String,
    /// What is held.
    pub held: Vec<Held>,
    /// What was made.
    pub made: Vec<Made>,
}

/// Where a ledger is kept. Whoever changes it has a lock.
pub trait Store {
    /// What was saved last, if anything was.
    ///
    /// # Errors
    /// It can't be read.
    fn load(&self) -> io::Result<Option<Vec<u8>>>;

    /// Replaces it at once, or removes it.
    ///
    /// # Errors
    /// It can't be written: what was there stays.
    fn save(&self, bytes: Option<&[u8]>) -> io::Result<()>;
}

/// A file.
#[derive(Debug)]
pub struct FileStore(PathBuf);

impl FileStore {
    /// The ledger in a directory.
    pub fn in_directory(directory: &Path) -> FileStore {
        FileStore(directory.join("devices.json"))
    }
}

impl Store for FileStore {
    fn load(&self) -> io::Result<Option<Vec<u8>>> {
        match fs::read(&self.0) {
            Err(why) if why.kind() == ErrorKind::NotFound => Ok(None),
            read => read.map(Some),
        }
    }

    fn save(&self, bytes: Option<&[u8]>) -> io::Result<()> {
        let Some(bytes) = bytes else {
            return match fs::remove_file(&self.0) {
                Err(why) if why.kind() != ErrorKind::NotFound => Err(why),
                _ => Ok(()),
            };
        };
        let new = self.0.with_extension("new");
        let mut file = fs::File::create(&new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&new, &self.0)
    }
}

impl Ledger {
    /// The ledger of this boot. What another boot has written is void: all drivers and functions are anew.
    ///
    /// # Errors
    /// It can't be read.
    pub fn read(tree: &dyn Tree, store: &dyn Store) -> Result<Ledger> {
        let boot = tree.text("proc/sys/kernel/random/boot_id").unwrap_or_default();
        let empty = Ledger { version: VERSION, boot: boot.clone(), held: vec![], made: vec![] };
        let failed = || "could not read which devices machines have".to_string();
        let Some(bytes) = store.load().explain(failed)? else {
            return Ok(empty);
        };
        let damaged = |why: String| {
            error!("{}: {why}", failed())
                .hint("A restart of this host makes it void; until then, no machine gets a device.")
        };
        let found: Ledger = serde_json::from_slice(&bytes).map_err(|why| damaged(why.to_string()))?;
        match found.boot == boot {
            true if found.version != VERSION => Err(damaged(format!("its version is {}", found.version))),
            true => Ok(found),
            false => Ok(empty),
        }
    }

    /// Writes it down.
    ///
    /// # Errors
    /// It can't be written.
    pub fn write(&self, store: &dyn Store) -> Result<()> {
        let is_empty = self.held.is_empty() && self.made.is_empty();
        let bytes = (!is_empty).then(|| serde_json::to_vec_pretty(self).expect("it is plain data"));
        store.save(bytes.as_deref()).explain(|| "could not write down which devices machines have".into())
    }

    /// Who holds a function.
    pub fn find(&self, address: Address) -> Option<&Held> {
        self.held.iter().find(|held| held.address == address)
    }
}
