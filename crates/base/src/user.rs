//! Users: the caller, the users that machines run as, and changing to one.

use crate::error::{error, Result};
use rustix::process::{getegid, geteuid, getgroups, Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The effective user id.
pub fn uid() -> u32 {
    geteuid().as_raw()
}

/// The users that machines run as if root starts them, each as one that nobody else is: they get none of
/// root's rights. Distributions give few of these numbers to accounts, and systemd lends some to services.
pub const MACHINE_USERS: Range<u32> = 65000..65520;

/// The first user of [`MACHINE_USERS`] that is neither taken nor an account's, and has no process, as those
/// of other clusters' machines and of containers have.
pub fn unused(taken: &BTreeSet<u32>) -> Result<u32> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let running: BTreeSet<u32> = processes.filter_map(|it| Some(it.metadata().ok()?.uid())).collect();
    choose(&|user| taken.contains(&user) || running.contains(&user) || has_account(user))
}

/// The first user of [`MACHINE_USERS`] that is no account's, for processes that share one.
pub fn without_account() -> Result<u32> {
    choose(&has_account)
}

fn choose(is_taken: &dyn Fn(u32) -> bool) -> Result<u32> {
    MACHINE_USERS.into_iter().find(|user| !is_taken(*user)).ok_or_else(|| {
        let (first, last) = (MACHINE_USERS.start, MACHINE_USERS.end - 1);
        error!("no user is left for a machine to run as")
            .hint(format!("All from {first} to {last} have an account or a process on this host."))
    })
}

/// Whether a user or a group of this system has the number, wherever the system keeps them.
pub fn has_account(number: u32) -> bool {
    let mut text = [0 as libc::c_char; 4096];
    // SAFETY: all fields are numbers and pointers, which may be null.
    let mut group: libc::group = unsafe { std::mem::zeroed() };
    let mut found = std::ptr::null_mut();
    // SAFETY: the text has room for what is said, and nothing outlives this call.
    let code = unsafe { libc::getgrgid_r(number, &mut group, text.as_mut_ptr(), text.len(), &mut found) };
    // One whose text is too long is there, too.
    !found.is_null() || code == libc::ERANGE || !matches!(account(number), Ok(None))
}

/// The name of a user of this system; `None` if it has none of this number.
pub fn name(number: u32) -> Option<String> {
    account(number).ok().flatten()
}

/// A user's name, wherever the system keeps it. The error: it has more text than there is room for.
fn account(number: u32) -> std::result::Result<Option<String>, ()> {
    let mut text = [0 as libc::c_char; 4096];
    // SAFETY: all fields are numbers and pointers, which may be null.
    let mut user: libc::passwd = unsafe { std::mem::zeroed() };
    let mut found = std::ptr::null_mut();
    // SAFETY: the text has room for what is said, and nothing outlives this function.
    let code = unsafe { libc::getpwuid_r(number, &mut user, text.as_mut_ptr(), text.len(), &mut found) };
    if found.is_null() {
        return if code == libc::ERANGE { Err(()) } else { Ok(None) };
    }
    // SAFETY: it was found, so the name is a string in the text.
    let name = unsafe { std::ffi::CStr::from_ptr(user.pw_name) };
    Ok(Some(name.to_string_lossy().into_owned()))
}

/// The user and groups that a command runs with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The user's id.
    pub uid: u32,
    /// The group's id.
    pub gid: u32,
    /// The ids of supplementary groups.
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

    /// Parses `USER`, `UID` or `UID:GID`.
    pub fn parse(text: &str) -> Result<Identity> {
        let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
        parse_identity(text, &passwd).ok_or_else(|| {
            error!("{text:?} is no user").hint("Give a name from /etc/passwd, a number, or two: UID:GID.")
        })
    }
}

/// The user that a text names, by a number or as a line of `passwd` has it.
pub fn parse_identity(text: &str, passwd: &str) -> Option<Identity> {
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
    fn a_machine_has_a_number_that_nobody_else_has() {
        let first = MACHINE_USERS.start;
        assert_eq!(choose(&|_| false).unwrap(), first);
        assert_eq!(choose(&|user| user < first + 3).unwrap(), first + 3);
        assert!(choose(&|_| true).unwrap_err().to_string().contains("no user is left"));
        let one = unused(&BTreeSet::new()).unwrap();
        assert!(unused(&BTreeSet::from([one])).unwrap() > one);
    }

    #[test]
    fn users_and_groups_are_accounts() {
        assert!(has_account(0));
        assert_eq!(name(0).as_deref(), Some("root"));
        assert_eq!(name(without_account().unwrap()), None);
        let groups = fs::read_to_string("/etc/group").unwrap();
        let numbers = groups.lines().filter_map(|line| line.split(':').nth(2)?.parse().ok());
        for number in numbers {
            assert!(has_account(number), "{number}");
        }
    }

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
