//! Temporary access control lists (acl(5)) for files that QEMU opens again through a descriptor. The kernel
//! checks permissions then, and the user that root's machines run as has none.

use rustix::fs::{fgetxattr, fremovexattr, fsetxattr, XattrFlags};
use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use vshmem_base::directories::is_private;
use vshmem_base::error::{Explain, Result};
use vshmem_base::user::{has_account, MACHINE_USERS};

const LIST: &str = "system.posix_acl_access";
/// The version of the format, from linux/posix_acl_xattr.h.
const VERSION: u32 = 2;
/// The tags of entries, from linux/posix_acl.h.
const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;
/// The id of entries that name no user.
const NOBODY: u32 = u32::MAX;

/// Permission for a user to read and write a file, until it is dropped.
pub struct TemporaryAcl {
    path: PathBuf,
    user: u32,
}

/// The files that this process has lent, to machines that start at once.
static LENT: Mutex<BTreeMap<PathBuf, Lent>> = Mutex::new(BTreeMap::new());

/// A file that is lent to users, and its permissions before.
struct Lent {
    file: File,
    mode: u32,
    before: Option<Vec<u8>>,
    has_lists: bool,
    users: Vec<u32>,
}

impl TemporaryAcl {
    /// Grants the permission. An earlier one may not have been dropped by a process that was killed; then
    /// this one restores the file's permissions.
    pub fn grant(path: &Path, user: u32) -> Result<TemporaryAcl> {
        let failed = || format!("could not lend {} to QEMU by an access control list", path.display());
        let mut all = LENT.lock().unwrap_or_else(PoisonError::into_inner);
        let mut lent = match all.remove(path) {
            Some(lent) => lent,
            None => Lent::find(path).explain(failed)?,
        };
        lent.users.push(user);
        let written = lent.write();
        all.insert(path.into(), lent);
        drop(all);
        let granted = TemporaryAcl { path: path.into(), user };
        written.explain(failed).map(|()| granted)
    }
}

impl Drop for TemporaryAcl {
    fn drop(&mut self) {
        let mut all = LENT.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(lent) = all.get_mut(&self.path) else { return };
        if let Some(at) = lent.users.iter().position(|user| *user == self.user) {
            lent.users.swap_remove(at);
        }
        if lent.users.is_empty() {
            lent.restore();
            all.remove(&self.path);
        } else {
            let _ = lent.write();
        }
    }
}

impl Lent {
    /// The file, with what is there of permissions, but those of earlier users of ours.
    fn find(path: &Path) -> io::Result<Lent> {
        let file = File::options().read(true).write(true).open(path)?;
        let mode = file.metadata()?.mode() & 0o7777;
        let before = match list_of(&file) {
            // A hugetlbfs has no such lists. Where nobody else gets at the file, it may be everybody's.
            Err(why) if why.raw_os_error() == Some(libc::EOPNOTSUPP) && is_hidden(path) => {
                return Ok(Lent { file, mode, before: None, has_lists: false, users: vec![] });
            }
            list => list?,
        };
        let old = before.as_deref().map(entries).unwrap_or_default();
        // Nothing is left of an earlier one that was not dropped.
        let ours = |user: u32| MACHINE_USERS.contains(&user) && !has_account(user);
        let stale = old.iter().any(|entry| entry.0 == USER && ours(entry.2));
        let [(_, user, _), (_, group, _), (_, other, _)] = own(&old, mode);
        let bits = u32::from(user) << 6 | u32::from(group) << 3 | u32::from(other);
        let mode = if stale { mode & 0o7000 | bits } else { mode };
        Ok(Lent { file, mode, before: before.filter(|_| !stale), has_lists: true, users: vec![] })
    }

    /// Gives the users their permission.
    fn write(&self) -> io::Result<()> {
        if !self.has_lists {
            return self.file.set_permissions(Permissions::from_mode(self.mode | 0o006));
        }
        let old = self.before.as_deref().map(entries).unwrap_or_default();
        let own = own(&old, self.mode);
        let mut all = vec![own[0]];
        all.extend(self.users.iter().map(|&user| (USER, 6, user)));
        all.extend([own[1], (MASK, 7, NOBODY), own[2]]);
        Ok(fsetxattr(&self.file, LIST, &encoded(&all), XattrFlags::empty())?)
    }

    fn restore(&self) {
        match &self.before {
            Some(list) => drop(fsetxattr(&self.file, LIST, list, XattrFlags::empty())),
            None => {
                let _ = fremovexattr(&self.file, LIST);
                // The list's mask has become the group's permissions.
                let _ = self.file.set_permissions(Permissions::from_mode(self.mode));
            }
        }
    }
}

/// The entries of owner, group and others: of a list, or of a mode.
fn own(list: &[(u16, u16, u32)], mode: u32) -> [(u16, u16, u32); 3] {
    [(USER_OBJ, mode >> 6), (GROUP_OBJ, mode >> 3), (OTHER, mode)].map(|(tag, bits)| {
        let known = list.iter().find(|entry| entry.0 == tag);
        (tag, known.map_or((bits & 7) as u16, |entry| entry.1), NOBODY)
    })
}

/// Whether only its owner can enter the directory of a file.
fn is_hidden(path: &Path) -> bool {
    path.parent().and_then(|directory| fs::symlink_metadata(directory).ok()).is_some_and(|it| is_private(&it))
}

fn list_of(file: &File) -> io::Result<Option<Vec<u8>>> {
    let mut list = vec![0; 4096];
    match fgetxattr(file, LIST, &mut list[..]) {
        Ok(len) => {
            list.truncate(len);
            Ok(Some(list))
        }
        Err(rustix::io::Errno::NODATA) => Ok(None),
        Err(why) => Err(why.into()),
    }
}

/// Tag, permissions and user of each entry.
fn entries(list: &[u8]) -> Vec<(u16, u16, u32)> {
    let entries = list.get(4..).unwrap_or_default().chunks_exact(8);
    let entry = |e: &[u8]| {
        (
            u16::from_le_bytes([e[0], e[1]]),
            u16::from_le_bytes([e[2], e[3]]),
            u32::from_le_bytes([e[4], e[5], e[6], e[7]]),
        )
    };
    entries.map(entry).collect()
}

fn encoded(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut out = VERSION.to_le_bytes().to_vec();
    for (tag, rights, user) in entries {
        out.extend(tag.to_le_bytes());
        out.extend(rights.to_le_bytes());
        out.extend(user.to_le_bytes());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_of_a_file_are_restored() {
        let path = Path::new("/dev/shm").join(format!("vshmem-acl-{}", std::process::id()));
        std::fs::write(&path, "").unwrap();
        let mode = || std::fs::metadata(&path).unwrap().mode() & 0o7777;
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let [one, other] = [MACHINE_USERS.start, MACHINE_USERS.start + 1];
        let first = match TemporaryAcl::grant(&path, one) {
            // The kernel may not support access control lists.
            Err(error) if error.to_string().contains("not supported") => {
                return std::fs::remove_file(&path).unwrap()
            }
            first => first.unwrap(),
        };
        let file = File::open(&path).unwrap();
        let list = || entries(&list_of(&file).unwrap().unwrap());
        assert!(list().contains(&(USER, 6, one)) && list().contains(&(GROUP_OBJ, 0, NOBODY)));
        // Several at once.
        let second = TemporaryAcl::grant(&path, other).unwrap();
        assert!(list().contains(&(USER, 6, one)) && list().contains(&(USER, 6, other)));
        drop(second);
        assert!(list().contains(&(USER, 6, one)) && !list().contains(&(USER, 6, other)));
        // One that was never dropped, since its process was killed, does not stay.
        std::mem::forget(first);
        LENT.lock().unwrap().remove(&path);
        drop(TemporaryAcl::grant(&path, other).unwrap());
        assert_eq!((mode(), list_of(&file).unwrap()), (0o600, None));
        std::fs::remove_file(&path).unwrap();
    }
}
