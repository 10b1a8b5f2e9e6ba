//! Commands where a command prefix reaches: in a container (`podman exec -i NAME`), in name spaces
//! (`nsenter`), on another host (`ssh`). There runs the same agent as in a machine; its channel is the
//! prefix's standard input and output. So commands there end with the channel, even if this process is
//! killed, and get nothing of this host's environment.

use super::channel::Channel;
use super::channel_command::ChannelCommand;
use super::local;
use super::location::Reached;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use vshmem_base::error::{error, Explain, Result};
use vshmem_base::signal_mask;

/// Time that the agent may take to begin: a container's runtime and ssh take a while on a busy host.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Programs that join their words to one text for a shell.
const JOINING: [&str; 2] = ["ssh", "rsh"];

/// A channel to a new agent there, which ends with the channel.
pub fn channel(place: &Reached) -> Result<Channel> {
    let Some((first, rest)) = place.prefix.split_first() else {
        return local::channel();
    };
    let failed = || format!("could not reach {} by {}", place.name, text(&place.prefix));
    let (ours, theirs) = UnixStream::pair().explain(failed)?;
    let theirs = OwnedFd::from(theirs);
    let mut command = Command::new(first);
    command.args(rest).args(agent(place));
    command.stdin(theirs.try_clone().explain(failed)?).stdout(theirs).stderr(Stdio::piped());
    // Ctrl-C is none of its business.
    command.process_group(0);
    signal_mask::unblock(&mut command);
    let mut child = ChannelCommand::new(command.spawn().explain(failed)?);
    drop(command);
    let greeted = Channel::greet(ours, TIMEOUT);
    if let Ok(Some(channel)) = greeted {
        return Ok(channel.beside(child));
    }
    let reason = child.error_text().unwrap_or("nothing answers there".into());
    greeted?;
    Err(error!("{}: {reason}", failed())
        .hint(format!("Does it run, and is there {}?", place.program.display())))
}

impl Reached {
    /// Whether the prefix joins the words that follow it, and gives them to a shell.
    pub fn joins_words(&self) -> bool {
        let name = self.prefix.first().and_then(|first| Path::new(first).file_name());
        name.is_some_and(|name| JOINING.iter().any(|other| name == *other))
    }
}

/// The words that start the agent.
fn agent(place: &Reached) -> [OsString; 3] {
    let path = place.program.to_str().filter(|_| place.joins_words());
    let quoted = path.and_then(|path| shlex::try_quote(path).ok());
    let program = quoted.map_or(place.program.clone().into(), |quoted| quoted.into_owned().into());
    [program, "rsh".into(), "--agent".into()]
}

fn text(words: &[OsString]) -> String {
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    words.join(" ")
}
