//! Users: the caller, the users that machines run as, and changing to one.

use crate::error::{error, Result};
use rustix::process::{getegid, geteuid, getgroups, Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The effective user id.
pub fn uid() -> u32 {
    geteuid().as_raw()
}

/// The users that machines run as if root starts them, one for each machine. Distributions don't allocate
/// these ids.
pub const MACHINE_USERS: std::ops::Range<u32> = 65000..65032;

/// The user that a machine runs as, if not its starter. Machines that root starts get none of root's rights.
pub fn of_machine(index: u32) -> Option<u32> {
    (uid() == 0).then_some(MACHINE_USERS.start + index)
}

/// The user and groups that a command runs with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
}

impl Identity {
    /// The user and groups of this process.
    pub fn current() -> Identity {
        let groups = getgroups().unwrap_or_default();
        Identity {
            uid: uid(),
            gid: getegid().as_raw(),
            groups: groups.into_iter().map(Gid::as_raw).collect(),
        }
    }

    /// From `USER`, `UID` or `UID:GID`.
    pub fn parse(text: &str) -> Result<Identity> {
        let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
        parse_identity(text, &passwd).ok_or_else(|| {
            error!("{text:?} is no user").hint("Give a name from /etc/passwd, a number, or two: UID:GID.")
        })
    }
}

pub(crate) fn parse_identity(text: &str, passwd: &str) -> Option<Identity> {
    let plain = |uid, gid| Some(Identity { uid, gid, groups: vec![] });
    if let Some((uid, gid)) = text.split_once(':') {
        return plain(uid.parse().ok()?, gid.parse().ok()?);
    }
    let number: Option<u32> = text.parse().ok();
    for line in passwd.lines() {
        let fields: Vec<&str> = line.split(':').collect();
        if let [name, _, uid, gid, ..] = fields[..] {
            if name == text || (number.is_some() && uid.parse() == Ok(number?)) {
                return plain(uid.parse().ok()?, gid.parse().ok()?);
            }
        }
    }
    plain(number?, number?)
}

/// Makes a program start as this user, with these groups and no others. It is not started if that is not
/// permitted. `PR_SET_PDEATHSIG` is cleared by a change of user, so it has to be set afterwards.
pub fn switch(command: &mut Command, uid: u32, gid: u32, groups: Vec<u32>) {
    let groups: Vec<Gid> = groups.into_iter().map(Gid::from_raw).collect();
    let switch = move || become_user(uid, gid, &groups);
    // SAFETY: the closure makes system calls only; it takes no lock and allocates nothing.
    unsafe { command.pre_exec(switch) };
}

/// Gives this process, which has one thread, a user, a group and further groups.
pub fn become_user(uid: u32, gid: u32, groups: &[Gid]) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    set_thread_groups(groups)?;
    set_thread_res_gid(gid, gid, gid)?;
    Ok(set_thread_res_uid(uid, uid, uid)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_name_and_number() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nme:x:1000:100::/home/me:\n";
        let ids = |text| parse_identity(text, passwd).map(|i| (i.uid, i.gid));
        assert_eq!(ids("root"), Some((0, 0)));
        assert_eq!(ids("me"), Some((1000, 100)));
        assert_eq!(ids("1000"), Some((1000, 100)));
        assert_eq!(ids("77"), Some((77, 77)));
        assert_eq!(ids("5:6"), Some((5, 6)));
        assert_eq!(ids("nobody"), None);
        assert_eq!(ids("5:x"), None);
    }
}
