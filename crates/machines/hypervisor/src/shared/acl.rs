//! Temporary access control lists (acl(5)) for files that QEMU opens again through a descriptor. The kernel
//! checks permissions then, and the user that root's machines run as has none.

use rustix::fs::{fgetxattr, fremovexattr, fsetxattr, XattrFlags};
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
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

/// Permission for these users to read and write a file, until it is dropped.
pub struct TemporaryAcl {
    file: File,
    mode: u32,
    before: Option<Vec<u8>>,
}

impl TemporaryAcl {
    /// Grants the permission. An earlier one may not have been dropped; then this one restores the file's
    /// permissions.
    pub fn grant(path: &Path, users: &[u32]) -> Result<TemporaryAcl> {
        let failed = || format!("could not lend {} to QEMU by an access control list", path.display());
        let file = File::options().read(true).write(true).open(path).explain(failed)?;
        let mode = file.metadata().explain(failed)?.mode() & 0o7777;
        let before = match list_of(&file) {
            // A hugetlbfs has no such lists. Where nobody else gets at the file, it may be everybody's.
            Err(why) if why.raw_os_error() == Some(libc::EOPNOTSUPP) && is_hidden(path) => {
                let open = Permissions::from_mode(mode | 0o006);
                file.set_permissions(open).explain(failed)?;
                return Ok(TemporaryAcl { file, mode, before: None });
            }
            list => list.explain(failed)?,
        };
        let old = before.as_deref().map(entries).unwrap_or_default();
        let base = |tag, bits: u32| {
            let known = old.iter().find(|entry| entry.0 == tag);
            known.map_or((bits & 7) as u16, |entry| entry.1)
        };
        let own = [(USER_OBJ, mode >> 6), (GROUP_OBJ, mode >> 3), (OTHER, mode)]
            .map(|(tag, bits)| (tag, base(tag, bits), NOBODY));
        let mut all = vec![own[0]];
        all.extend(users.iter().map(|&user| (USER, 6, user)));
        all.extend([own[1], (MASK, 7, NOBODY), own[2]]);
        let written = fsetxattr(&file, LIST, &encoded(&all), XattrFlags::empty());
        written.explain(failed)?;
        // Nothing is left of an earlier one that was not dropped.
        let ours = |user: u32| MACHINE_USERS.contains(&user) && !has_account(user);
        let stale = old.iter().any(|entry| entry.0 == USER && ours(entry.2));
        let [user, group, other] = own.map(|(_, bits, _)| u32::from(bits));
        Ok(TemporaryAcl {
            file,
            mode: match stale {
                true => mode & 0o7000 | user << 6 | group << 3 | other,
                false => mode,
            },
            before: before.filter(|_| !stale),
        })
    }
}

impl Drop for TemporaryAcl {
    fn drop(&mut self) {
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
        let first = match TemporaryAcl::grant(&path, &[MACHINE_USERS.start]) {
            // The kernel may not support access control lists.
            Err(error) if error.to_string().contains("not supported") => {
                return std::fs::remove_file(&path).unwrap()
            }
            first => first.unwrap(),
        };
        let list = entries(&list_of(&first.file).unwrap().unwrap());
        assert!(list.contains(&(USER, 6, MACHINE_USERS.start)) && list.contains(&(GROUP_OBJ, 0, NOBODY)));
        // One that was never dropped does not stay.
        std::mem::forget(first);
        drop(TemporaryAcl::grant(&path, &[MACHINE_USERS.start + 1]).unwrap());
        let file = File::open(&path).unwrap();
        assert_eq!((mode(), list_of(&file).unwrap()), (0o600, None));
        std::fs::remove_file(&path).unwrap();
    }
}
