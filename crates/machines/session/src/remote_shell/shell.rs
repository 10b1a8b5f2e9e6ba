//! The remote shell, `vshmem rsh HOST WORDS...`: it asks the relay for a command in another host, and waits
//! for its end.

use super::{FAILURE, VARIABLE};
use crate::wire::lines::Lines;
use crate::wire::relay::{from_line, to_line, RequestOutcome, ShellRequest, MAX_LINE};
use rustix::net::{connect, socket_with, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use vshmem_base::error::{error, Error, Explain, Result};

/// Runs words in a host of the job, as ssh does: they are joined to one text. Returns the command's
/// exit code; if the command was refused, or the job was ended, 255, for the host says why.
///
/// # Errors
/// There is no relay, or it can't be asked for that.
pub fn call(host: &str, words: &[OsString]) -> Result<u8> {
    ask(host, words).map_err(|error| error.code(FAILURE))
}

fn ask(host: &str, words: &[OsString]) -> Result<u8> {
    let relay = std::env::var(VARIABLE).unwrap_or_default();
    let Some((name, token)) = relay.split_once(':') else {
        return Err(Error::new("vshmem rsh is started by an MPI's launcher under vshmem mpirun"));
    };
    let words: Option<Vec<&str>> = words.iter().map(|word| word.to_str()).collect();
    let command = words.ok_or_else(|| Error::new("a remote command must be UTF-8"))?.join(" ");
    let call = to_line(&ShellRequest { token: token.into(), host: host.into(), command });
    if call.len() > MAX_LINE {
        return Err(error!("the remote command takes {} bytes; {MAX_LINE} is the most", call.len()));
    }
    let gone = || "the relay of vshmem mpirun is gone".to_string();
    let mut stream = reach(name).explain(gone)?;
    stream.write_all(&call).explain(gone)?;
    match answer(&mut stream) {
        Some(RequestOutcome::Ended { code }) => Ok(code),
        Some(RequestOutcome::Refused { .. }) | None => Ok(FAILURE),
    }
}

fn reach(name: &str) -> std::io::Result<UnixStream> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    connect(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    Ok(socket.into())
}

/// The outcome that the relay answers. `None`: the relay has ended.
fn answer(stream: &mut UnixStream) -> Option<RequestOutcome> {
    let mut lines = Lines::default();
    loop {
        let mut bytes = [0; 4096];
        let len = match stream.read(&mut bytes) {
            Ok(len) if len > 0 => len,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
            _ => return None,
        };
        if let Some(line) = lines.push(&bytes[..len], MAX_LINE).ok()?.first() {
            return from_line(line);
        }
    }
}
