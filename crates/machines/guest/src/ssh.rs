//! The ssh server of a machine, for `vshmem ssh`: a connection to it, and its host keys. Both come by the
//! machine's channel, so that no port has to be open, and no key has to be trusted unseen.

use rustix::system::uname;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::path::Path;
use std::thread;
use std::time::Duration;
use vshmem_base::error::{error, Explain, Result};
use vshmem_base::interrupt;

/// The directory of ssh servers' keys.
const KEYS: &str = "/etc/ssh";
/// The program of the ssh server.
const SERVER: &str = "/usr/sbin/sshd";
/// The directory by which systemd is known to start services.
const SYSTEMD: &str = "/run/systemd/system";
/// Bytes that are passed on at a time.
const BUFFER: usize = 64 * 1024;
/// Time that a machine which still starts its services may take until its ssh server answers.
const SERVER_START_TIMEOUT: Duration = Duration::from_secs(60);

/// Connects standard input and output with this TCP port of the machine, until the other end closes the
/// connection.
///
/// # Errors
/// No process listens there.
pub fn connect(port: u16) -> Result<()> {
    let starts = Path::new(SERVER).exists() && Path::new(SYSTEMD).exists();
    let stream = dial(port, if starts { SERVER_START_TIMEOUT } else { Duration::ZERO })?;
    let (mut input, mut output) = (plain(io::stdin().as_fd())?, plain(io::stdout().as_fd())?);
    let mut to = stream.try_clone().explain(copying)?;
    // It is not awaited: the client may send more when the other end has closed.
    thread::spawn(move || {
        let _ = pass_on(&mut input, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    });
    match pass_on(&mut &stream, &mut output) {
        Err(why) if why.kind() != io::ErrorKind::BrokenPipe => Err(why).explain(copying),
        _ => Ok(()),
    }
}

/// Copies bytes as they come, until their end. [`io::copy`] would splice them, which holds the lock of the
/// pipe to the machine's agent: the agent would stand still until bytes come.
fn pass_on(from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(length) => to.write_all(&buffer[..length])?,
            Err(why) if why.kind() == io::ErrorKind::Interrupted => (),
            Err(why) => return Err(why),
        }
    }
}

fn copying() -> String {
    "could not pass on the connection".into()
}

/// A stream without a buffer.
fn plain(stream: impl AsFd) -> Result<File> {
    Ok(stream.as_fd().try_clone_to_owned().explain(copying)?.into())
}

fn dial(port: u16, timeout: Duration) -> Result<TcpStream> {
    let addresses: [SocketAddr; 2] = [(Ipv4Addr::LOCALHOST, port).into(), (Ipv6Addr::LOCALHOST, port).into()];
    let mut refused = None;
    let mut once = || match TcpStream::connect(&addresses[..]) {
        Ok(stream) => Some(stream),
        Err(why) => {
            refused = Some(why);
            None
        }
    };
    interrupt::wait_for(timeout, || Ok(once()))?.ok_or_else(|| {
        let name = uname().nodename().to_string_lossy().into_owned();
        let why = refused.map(|why| format!(": {why}")).unwrap_or_default();
        error!("{name} has no ssh server at its port {port}{why}").hint(format!(
            "Commands run there without one: vshmem exec {name} -- COMMAND, or vshmem shell {name}"
        ))
    })
}

/// The public keys of the machine's ssh server, as lines of a file of known hosts, under this name.
pub fn host_keys(name: &str) -> Result<String> {
    host_keys_in(Path::new(KEYS), name).explain(|| format!("reading the host keys in {KEYS}"))
}

fn host_keys_in(directory: &Path, name: &str) -> io::Result<String> {
    let entries = fs::read_dir(directory)?.flatten().map(|entry| entry.path());
    let is_key = |path: &Path| {
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        file.starts_with("ssh_host_") && file.ends_with("_key.pub")
    };
    let mut lines: Vec<String> = entries
        .filter(|path| is_key(path))
        .filter_map(|path| known(&fs::read_to_string(path).ok()?, name))
        .collect();
    lines.sort();
    Ok(lines.concat())
}

/// A line of known hosts, from the text of a public key: its kind and itself, without its comment.
fn known(key: &str, name: &str) -> Option<String> {
    let mut words = key.split_ascii_whitespace();
    let (kind, key) = (words.next()?, words.next()?);
    Some(format!("{name} {kind} {key}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_keys_are_known_by_the_name_that_was_asked_for() {
        let root = std::env::temp_dir().join(format!("vshmem-host-keys-{}", std::process::id()));
        fs::create_dir_all(&root).unwrap();
        fs::write(root.join("ssh_host_rsa_key.pub"), "ssh-rsa BBBB root@vm0\n").unwrap();
        fs::write(root.join("ssh_host_ed25519_key.pub"), "ssh-ed25519 AAAA").unwrap();
        fs::write(root.join("ssh_host_ed25519_key"), "-----BEGIN OPENSSH PRIVATE KEY-----").unwrap();
        fs::write(root.join("ssh_host_bad_key.pub"), "\n").unwrap();
        let said = host_keys_in(&root, "vm0.default").unwrap();
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(said, "vm0.default ssh-ed25519 AAAA\nvm0.default ssh-rsa BBBB\n");
    }

    #[test]
    fn a_port_where_nobody_listens_is_said() {
        // Bound, and never listened at.
        let taken = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let why = dial(taken.local_addr().unwrap().port(), Duration::ZERO).unwrap_err().to_string();
        assert!(why.contains("no ssh server at its port") && why.contains("vshmem exec"), "{why}");
    }
}
