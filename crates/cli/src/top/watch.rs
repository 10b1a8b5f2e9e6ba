//! The pools that `vshmem top` samples.

use vshmem_base::Result;
use vshmem_inspect::pools::{find, name_of};
use vshmem_inspect::sample::{Sample, Watched};

/// The open pools, and their last samples.
pub struct Watch {
    only: Option<String>,
    open: Vec<Watched>,
    pub samples: Vec<Sample>,
}

impl Watch {
    /// All pools of this user, or this one.
    pub fn new(only: Option<String>) -> Watch {
        Watch { only, open: Vec::new(), samples: Vec::new() }
    }

    /// Samples all pools that exist now.
    pub fn sample(&mut self) -> Result<()> {
        self.open.retain(|pool| !pool.is_gone());
        for found in find(self.only.as_deref())? {
            let name = name_of(&found);
            if self.open.iter().any(|pool| pool.name() == name) {
                continue;
            }
            match Watched::open(&found) {
                Ok(pool) => self.open.push(pool),
                // It may have been removed a moment ago, and may come back.
                Err(error) if self.only.is_some() && self.samples.is_empty() => return Err(error),
                Err(_) => (),
            }
        }
        self.open.sort_by(|a, b| a.name().cmp(b.name()));
        let before = std::mem::take(&mut self.samples);
        for pool in &self.open {
            let mut sample = pool.sample();
            if let Some(before) = before.iter().find(|before| before.pool == sample.pool) {
                sample.compare(before);
            }
            self.samples.push(sample);
        }
        Ok(())
    }
}
