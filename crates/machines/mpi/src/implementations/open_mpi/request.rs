//! The words that Open MPI's launchers give to their remote shell.

use crate::implementation::Request;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use vshmem_base::error::{error, Result};

/// Variables by which a daemon of an MPI that was moved finds its files.
const PREFIXES: [&[u8]; 3] = [b"OPAL_PREFIX", b"PMIX_PREFIX", b"PRTE_PREFIX"];
/// Search paths that it would extend. Its hosts' own environment has them.
const PATHS: [&[u8]; 3] = [b"PATH", b"LD_LIBRARY_PATH", b"DYLD_LIBRARY_PATH"];

/// The parameters that name the remote shell.
const AGENTS: [&str; 2] = ["plm_rsh_agent", "plm_ssh_agent"];
/// A remote shell that starts nothing.
const NO_AGENT: &str = "/bin/false";

/// Reads the words. PRRTE's first ones are `NAME=VALUE;export NAME;...;/bin/prted`.
pub fn read(words: &[OsString]) -> Result<Request> {
    let count = words.iter().take_while(|word| word.as_bytes().contains(&b';')).count();
    let (head, arguments) = words.split_at(count);
    let head = head.join(" ".as_ref());
    let mut rest = head.as_bytes();
    let mut variables = Vec::new();
    while let Some((name, value, after)) = exported(rest)? {
        rest = after;
        // Hosts' own environment has the search paths.
        if !PATHS.contains(&name) {
            variables.push(variable(name, value)?);
        }
    }
    let daemon = (count > 0).then(|| OsStr::from_bytes(rest).to_owned());
    Ok(Request { variables, arguments: daemon.into_iter().chain(daemon_s_own(arguments)).collect() })
}

/// A daemon's arguments, without those that only concern the launcher.
fn daemon_s_own(arguments: &[OsString]) -> Vec<OsString> {
    // The end of the remote shell is that of the daemon, so it must stay in the foreground.
    let mut out: Vec<_> = arguments.iter().filter(|word| *word != "--daemonize").cloned().collect();
    // A daemon does not start if it can't find the remote shell, though it has none to start by it.
    for index in 1..out.len() {
        if AGENTS.iter().any(|name| out[index - 1] == *name) {
            out[index] = NO_AGENT.into();
        }
    }
    out
}

/// A variable's name, its value, and the text that follows.
type Exported<'a> = (&'a [u8], &'a [u8], &'a [u8]);

/// The leading `NAME=VALUE;export NAME;`, if there is one.
fn exported(text: &[u8]) -> Result<Option<Exported<'_>>> {
    let Some((name, rest)) = split_at(text, b'=').filter(|(name, _)| !name.contains(&b';')) else {
        return Ok(None);
    };
    let parts = split_at(rest, b';').and_then(|(value, rest)| {
        let (export, rest) = split_at(rest, b';')?;
        (export.strip_prefix(b"export ") == Some(name)).then_some((name, value, rest))
    });
    let shown = String::from_utf8_lossy(name);
    parts.map(Some).ok_or_else(|| error!("only a shell knows what its setting of {shown} means"))
}

/// `NAME=VALUE`, if it is one of [`PREFIXES`] and its value a path.
fn variable(name: &[u8], value: &[u8]) -> Result<OsString> {
    let is_plain = |b: &u8| b.is_ascii_alphanumeric() || b"/._+-,@%".contains(b);
    if !PREFIXES.contains(&name) || !value.iter().all(is_plain) {
        return Err(error!("it sets {}", String::from_utf8_lossy(name)));
    }
    Ok(OsString::from_vec([name, b"=", value].concat()))
}

fn split_at(text: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let index = text.iter().position(|b| *b == at)?;
    Some((&text[..index], &text[index + 1..]))
}
