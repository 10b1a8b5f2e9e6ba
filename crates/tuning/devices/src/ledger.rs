//! The ledger: the holders of functions, and the state before. It is written before anything is changed, so
//! that all can be put back whatever happens.

use crate::address::Address;
use crate::tree::Tree;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use vshmem_base::error::{error, Explain, Result};

/// The format that this program writes.
const VERSION: u32 = 1;

/// The holder of a function.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The directory of the cluster.
    pub cluster: PathBuf,
    /// The machine.
    pub machine: String,
}

/// A function that is held, and its state before.
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

/// Virtual functions that Vshmem has made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VirtualFunctions {
    /// Their physical function.
    pub physical: Address,
    /// Their number.
    pub count: u32,
    /// Value that `sriov_drivers_autoprobe` is to have again, if it is another now.
    pub autoprobe: Option<String>,
}

/// The ledger of one boot of a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    version: u32,
    boot: String,
    /// The functions that are held.
    pub held: Vec<Held>,
    /// The virtual functions that Vshmem has made.
    #[serde(rename = "made")]
    pub virtuals: Vec<VirtualFunctions>,
}

/// A place for a ledger. A caller that changes it has its lock.
pub trait Store {
    /// The bytes that were saved last, if any were.
    ///
    /// # Errors
    /// It can't be read.
    fn load(&self) -> io::Result<Option<Vec<u8>>>;

    /// Replaces them in one step, or removes them.
    ///
    /// # Errors
    /// They can't be written: those that were there stay.
    fn save(&self, bytes: Option<&[u8]>) -> io::Result<()>;
}

/// A ledger's file.
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
    /// The ledger of this boot. That of another boot is void: all drivers and functions are anew.
    ///
    /// # Errors
    /// It can't be read.
    pub fn read(tree: &dyn Tree, store: &dyn Store) -> Result<Ledger> {
        let boot = tree.text("proc/sys/kernel/random/boot_id").unwrap_or_default();
        let empty = Ledger { version: VERSION, boot: boot.clone(), held: vec![], virtuals: vec![] };
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
        let is_empty = self.held.is_empty() && self.virtuals.is_empty();
        let bytes = (!is_empty).then(|| serde_json::to_vec_pretty(self).expect("it is plain data"));
        store.save(bytes.as_deref()).explain(|| "could not write down which devices machines have".into())
    }

    /// The entry of a function that is held.
    pub fn find(&self, address: Address) -> Option<&Held> {
        self.held.iter().find(|held| held.address == address)
    }
}
