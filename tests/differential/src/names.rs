//! The names of flags, commands and errors as scripts write them.

/// Flags and commands.
const CONSTANTS: &[(&str, i64)] = &[
    ("IPC_PRIVATE", 0),
    ("K0", 0x5600),
    ("K1", 0x5601),
    ("K2", -0x5602),
    ("IPC_CREAT", libc::IPC_CREAT as i64),
    ("IPC_EXCL", libc::IPC_EXCL as i64),
    ("IPC_NOWAIT", libc::IPC_NOWAIT as i64),
    ("SEM_UNDO", libc::SEM_UNDO as i64),
    ("MSG_NOERROR", libc::MSG_NOERROR as i64),
    ("MSG_EXCEPT", libc::MSG_EXCEPT as i64),
    ("MSG_COPY", libc::MSG_COPY as i64),
    ("SHM_RDONLY", libc::SHM_RDONLY as i64),
    ("SHM_RND", libc::SHM_RND as i64),
    ("SHM_REMAP", libc::SHM_REMAP as i64),
    ("SHM_EXEC", libc::SHM_EXEC as i64),
    ("SHM_NORESERVE", libc::SHM_NORESERVE as i64),
    ("IPC_RMID", libc::IPC_RMID as i64),
    ("IPC_SET", libc::IPC_SET as i64),
    ("IPC_STAT", libc::IPC_STAT as i64),
    ("IPC_INFO", libc::IPC_INFO as i64),
    ("GETPID", libc::GETPID as i64),
    ("GETVAL", libc::GETVAL as i64),
    ("GETALL", libc::GETALL as i64),
    ("GETNCNT", libc::GETNCNT as i64),
    ("GETZCNT", libc::GETZCNT as i64),
    ("SETVAL", libc::SETVAL as i64),
    ("SETALL", libc::SETALL as i64),
    ("SEM_STAT", libc::SEM_STAT as i64),
    ("SEM_INFO", libc::SEM_INFO as i64),
    ("SEM_STAT_ANY", libc::SEM_STAT_ANY as i64),
    ("MSG_STAT", libc::MSG_STAT as i64),
    ("MSG_INFO", libc::MSG_INFO as i64),
    ("MSG_STAT_ANY", 13),
    ("SHM_LOCK", 11),
    ("SHM_UNLOCK", 12),
    ("SHM_STAT", 13),
    ("SHM_INFO", 14),
    ("SHM_STAT_ANY", 15),
    ("LONG_MIN", i64::MIN),
    ("LONG_MAX", i64::MAX),
    ("INT_MIN", i32::MIN as i64),
];

/// The number that a word stands for: `NAME`, `123`, `0600`, `0x10`, or several joined by `|`.
pub fn number(word: &str) -> Option<i64> {
    word.split('|').try_fold(0i64, |sum, part| single(part).map(|value| sum | value))
}

fn single(word: &str) -> Option<i64> {
    if let Some((_, value)) = CONSTANTS.iter().find(|(name, _)| *name == word) {
        return Some(*value);
    }
    if let Some(digits) = word.strip_prefix("0x") {
        return u64::from_str_radix(digits, 16).ok().map(|value| value as i64);
    }
    if word.len() > 1 && word.starts_with('0') {
        return i64::from_str_radix(word, 8).ok();
    }
    word.parse::<i64>().ok().or_else(|| word.parse::<u64>().ok().map(|value| value as i64))
}

const ERRORS: &[(i32, &str)] = &[
    (libc::EPERM, "EPERM"),
    (libc::ENOENT, "ENOENT"),
    (libc::ESRCH, "ESRCH"),
    (libc::EINTR, "EINTR"),
    (libc::E2BIG, "E2BIG"),
    (libc::EAGAIN, "EAGAIN"),
    (libc::ENOMEM, "ENOMEM"),
    (libc::EACCES, "EACCES"),
    (libc::EFAULT, "EFAULT"),
    (libc::EEXIST, "EEXIST"),
    (libc::EINVAL, "EINVAL"),
    (libc::EFBIG, "EFBIG"),
    (libc::ENOSPC, "ENOSPC"),
    (libc::ERANGE, "ERANGE"),
    (libc::ENOSYS, "ENOSYS"),
    (libc::ENOMSG, "ENOMSG"),
    (libc::EIDRM, "EIDRM"),
    (libc::EOVERFLOW, "EOVERFLOW"),
];

/// The name of an errno value, or its number.
pub fn error(errno: i32) -> String {
    let known = ERRORS.iter().find(|(value, _)| *value == errno);
    known.map_or_else(|| format!("errno {errno}"), |(_, name)| (*name).to_owned())
}
