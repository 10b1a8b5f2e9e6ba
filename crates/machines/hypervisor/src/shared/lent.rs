//! The file of a pool as libvirt finds it: by its name right in `/dev/shm`. A pool that is elsewhere is lent
//! there, by a second link, until QEMU has opened it.

use super::acl::TemporaryAcl;
use crate::state::record::Granted;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use vshmem_base::error::{error, Result};

const SHM: &str = "/dev/shm";

/// To whom files are lent.
#[derive(Debug, Clone, Copy)]
pub struct Borrower<'a> {
    /// The UUID of its domain.
    pub uuid: &'a str,
    /// The user that its QEMU runs as, if not this one.
    pub user: Option<u32>,
}

/// A pool's file in `/dev/shm`. What was lent is taken back when this is dropped.
pub struct Lent {
    /// Its name there.
    pub name: String,
    link: Option<PathBuf>,
    _acl: Option<TemporaryAcl>,
}

impl Lent {
    /// A file that must be there already.
    pub fn in_place(pool: &Path) -> Result<Lent> {
        match name_in_shm(pool) {
            Some(name) => Ok(Lent { name, link: None, _acl: None }),
            None => Err(error!(
                "libvirt takes pools right in {SHM} only, and {} is elsewhere: make one with vshmem pool create {SHM}/NAME",
                pool.display()
            )),
        }
    }

    /// Lends a file.
    pub fn to(pool: &Granted, borrower: Borrower<'_>) -> Result<Lent> {
        let acl = borrower.user.map(|user| TemporaryAcl::grant(&pool.path, &[user])).transpose()?;
        if let Some(name) = name_in_shm(&pool.path) {
            return Ok(Lent { name, link: None, _acl: acl });
        }
        let name = format!("{}{}", prefix(borrower.uuid), pool.name);
        let link = Path::new(SHM).join(&name);
        remove(&link).and_then(|()| fs::hard_link(&pool.path, &link)).map_err(|why| {
            error!(
                "libvirt finds pools in {SHM} only, and {} can't be linked there: {why}",
                pool.path.display()
            )
            .hint("Pools on a hugetlbfs come with doorbells only (doorbell = true).")
        })?;
        Ok(Lent { name, link: Some(link), _acl: acl })
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // The next one under this name, or the end of the cluster, removes what stays.
        let _ = self.link.as_deref().map(remove);
    }
}

/// Takes back what a killed command has lent to a domain.
pub fn take_back(uuid: &str) {
    let prefix = prefix(uuid);
    let is_lent = |name: &str| name.starts_with(&prefix);
    for entry in fs::read_dir(SHM).into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_some_and(is_lent) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn prefix(uuid: &str) -> String {
    format!("vshmem-{uuid}-")
}

fn name_in_shm(pool: &Path) -> Option<String> {
    let name = pool.file_name().filter(|_| pool.parent() == Some(Path::new(SHM)))?;
    Some(name.to_string_lossy().into_owned())
}

fn remove(link: &Path) -> std::io::Result<()> {
    match fs::remove_file(link) {
        Err(why) if why.kind() != ErrorKind::NotFound => Err(why),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_file_is_lent_and_taken_back() {
        let directory = Path::new(SHM).join(format!("vshmem-lent-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let pool = Granted::new("work".into(), directory.join("pool"), 1 << 20, false);
        fs::write(&pool.path, "x").unwrap();
        let uuid = format!("test{}", std::process::id());
        let borrower = Borrower { uuid: &uuid, user: None };
        assert!(
            Lent::in_place(&pool.path).is_err_and(|error| error.to_string().contains("right in /dev/shm"))
        );
        let links = || fs::metadata(&pool.path).unwrap().nlink();
        let lent = Lent::to(&pool, borrower).unwrap();
        assert_eq!((lent.name.as_str(), links()), (&*format!("vshmem-{uuid}-work"), 2));
        // Whoever was killed has not taken it back.
        std::mem::forget(lent);
        drop(Lent::to(&pool, borrower).unwrap());
        assert_eq!(links(), 1);
        std::mem::forget(Lent::to(&pool, borrower).unwrap());
        take_back(&uuid);
        assert_eq!(links(), 1);
        fs::remove_dir_all(&directory).unwrap();
        assert_eq!(Lent::in_place(Path::new("/dev/shm/work")).unwrap().name, "work");
    }
}
