//! The limit of open files (`RLIMIT_NOFILE`): hundreds of commands need some descriptors each.

use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Descriptors that are enough for thousands of commands.
const ENOUGH: u64 = 1 << 16;

/// Raises this process's limit as far as permitted. Returns the limit before, for [`restore`].
pub fn raise() -> Rlimit {
    let before = getrlimit(Resource::Nofile);
    let allow = |maximum| {
        let current = maximum;
        setrlimit(Resource::Nofile, Rlimit { current, maximum })
    };
    let enough = before.maximum.map(|most| most.max(ENOUGH));
    if allow(enough).is_err() {
        // Only root can raise the hard limit.
        let _ = allow(before.maximum);
    }
    before
}

/// Makes a program start with this limit. Some programs close each descriptor that the limit allows.
pub fn restore(command: &mut Command, limit: &Rlimit) {
    let (current, maximum) = (limit.current, limit.maximum);
    let restore = move || setrlimit(Resource::Nofile, Rlimit { current, maximum }).map_err(io::Error::from);
    // SAFETY: the closure makes one system call; it takes no lock and allocates nothing.
    unsafe { command.pre_exec(restore) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_begin_with_the_limit_that_was() {
        let before = raise();
        assert_eq!(getrlimit(Resource::Nofile).current, getrlimit(Resource::Nofile).maximum);
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -n"]);
        restore(&mut command, &before);
        let said = String::from_utf8(command.output().unwrap().stdout).unwrap();
        let limit = before.current.map_or("unlimited".into(), |n| n.to_string());
        assert_eq!(said.trim(), limit);
    }
}
