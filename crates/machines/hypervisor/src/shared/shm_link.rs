//! The link of a pool in `/dev/shm`, by whose name libvirt finds the pool. A pool that is elsewhere has a
//! second link there until QEMU has opened it.

use super::acl::TemporaryAcl;
use crate::state::record::Granted;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use vshmem_base::error::{error, Result};

const SHM: &str = "/dev/shm";

/// The domain that links are made for.
#[derive(Debug, Clone, Copy)]
pub struct LinkUser<'a> {
    /// The domain's UUID.
    pub uuid: &'a str,
    /// The user that its QEMU runs as, if not this one.
    pub user: Option<u32>,
}

/// A pool's link in `/dev/shm`. A link that was made is removed when this is dropped.
pub struct ShmLink {
    /// Its name there.
    pub name: String,
    link: Option<PathBuf>,
    _acl: Option<TemporaryAcl>,
}

impl ShmLink {
    /// The link of a pool that lies in `/dev/shm`; an error if it does not.
    pub fn in_place(pool: &Path) -> Result<ShmLink> {
        match name_in_shm(pool) {
            Some(name) => Ok(ShmLink { name, link: None, _acl: None }),
            None => Err(error!(
                "libvirt takes pools right in {SHM} only, and {} is elsewhere: make one with vshmem pool create {SHM}/NAME",
                pool.display()
            )),
        }
    }

    /// Makes a link of a pool for a domain.
    pub fn make(pool: &Granted, link_user: LinkUser<'_>) -> Result<ShmLink> {
        let acl = link_user.user.map(|user| TemporaryAcl::grant(&pool.path, user)).transpose()?;
        if let Some(name) = name_in_shm(&pool.path) {
            return Ok(ShmLink { name, link: None, _acl: acl });
        }
        let name = format!("{}{}", prefix(link_user.uuid), pool.name);
        let link = Path::new(SHM).join(&name);
        remove(&link).and_then(|()| fs::hard_link(&pool.path, &link)).map_err(|why| {
            error!(
                "libvirt finds pools in {SHM} only, and {} can't be linked there: {why}",
                pool.path.display()
            )
            .hint("Pools on a hugetlbfs take wake-ups between machines (doorbell = true).")
        })?;
        Ok(ShmLink { name, link: Some(link), _acl: acl })
    }
}

impl Drop for ShmLink {
    fn drop(&mut self) {
        // The next one under this name, or the end of the cluster, removes what stays.
        let _ = self.link.as_deref().map(remove);
    }
}

/// Removes the links that a killed command has made for a domain.
pub fn remove_links(uuid: &str) {
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
        let directory = Path::new(SHM).join(format!("vshmem-link-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let pool = Granted::new("work".into(), directory.join("pool"), 1 << 20, false);
        fs::write(&pool.path, "x").unwrap();
        let uuid = format!("test{}", std::process::id());
        let link_user = LinkUser { uuid: &uuid, user: None };
        assert!(
            ShmLink::in_place(&pool.path).is_err_and(|error| error.to_string().contains("right in /dev/shm"))
        );
        let links = || fs::metadata(&pool.path).unwrap().nlink();
        let shm_link = ShmLink::make(&pool, link_user).unwrap();
        assert_eq!((shm_link.name.as_str(), links()), (&*format!("vshmem-{uuid}-work"), 2));
        // A killed command has not removed its link.
        std::mem::forget(shm_link);
        drop(ShmLink::make(&pool, link_user).unwrap());
        assert_eq!(links(), 1);
        std::mem::forget(ShmLink::make(&pool, link_user).unwrap());
        remove_links(&uuid);
        assert_eq!(links(), 1);
        fs::remove_dir_all(&directory).unwrap();
        assert_eq!(ShmLink::in_place(Path::new("/dev/shm/work")).unwrap().name, "work");
    }
}
