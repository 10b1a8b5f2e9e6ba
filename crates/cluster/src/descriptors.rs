//! How many descriptors a process may have open: who runs hundreds of commands needs some for each.

use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Enough for thousands of commands.
const ENOUGH: u64 = 1 << 16;

/// Allows this process as many as it can have. What it was allowed before, for [`restore`].
pub fn raise() -> Rlimit {
    let before = getrlimit(Resource::Nofile);
    let allow = |maximum| {
        let current = maximum;
        setrlimit(Resource::Nofile, Rlimit { current, maximum })
    };
    let enough = before.maximum.map(|most| most.max(ENOUGH));
    if allow(enough).is_err() {
        // Only root can have more than what is allowed at the most.
        let _ = allow(before.maximum);
    }
    before
}

/// Has a program begin with this limit: some programs look at each descriptor that they could have.
pub fn restore(command: &mut Command, limit: &Rlimit) {
    let (current, maximum) = (limit.current, limit.maximum);
    let restore =
        move || setrlimit(Resource::Nofile, Rlimit { current, maximum }).map_err(io::Error::from);
    // SAFETY: the closure makes one system call; it takes no lock and no memory.
    unsafe { command.pre_exec(restore) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_begin_with_the_limit_that_was() {
        let before = raise();
        assert_eq!(
            getrlimit(Resource::Nofile).current,
            getrlimit(Resource::Nofile).maximum
        );
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -n"]);
        restore(&mut command, &before);
        let said = String::from_utf8(command.output().unwrap().stdout).unwrap();
        let limit = before.current.map_or("unlimited".into(), |n| n.to_string());
        assert_eq!(said.trim(), limit);
    }
}
