//! Requests on the control socket.

use super::{check_peer_process, listen, Next, Server, ACCEPTS_PER_EVENT};
use crate::buffered_socket::BufferedSocket;
use crate::ivshmem::control::{Request, Response, Status, MAX_REQUEST};
use crate::ivshmem::fd_store::MAX_VECTORS;
use crate::ivshmem::peer_table::PeerTable;
use crate::ivshmem::served_pool::{new_eventfds, ServedPool, StoredPool};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use vshmem_base::error::{error, Explain, Result};
use vshmem_transport::PoolRef;

/// Connections at a time.
const MAX_CLIENTS: usize = 64;
/// Names that are stored for machines which have not connected yet.
const MAX_NAMES: usize = 256;

impl Server<'_> {
    pub(super) fn accept_clients(&mut self) {
        for _ in 0..ACCEPTS_PER_EVENT {
            let Ok((stream, _)) = self.control.accept() else {
                return;
            };
            let is_allowed = check_peer_process(stream.as_fd()).is_ok();
            let accepts = is_allowed && self.clients.len() < MAX_CLIENTS;
            if !accepts || stream.set_nonblocking(true).is_err() {
                continue;
            }
            self.serial += 1;
            self.clients.insert(self.serial, BufferedSocket::new(stream.into()));
        }
    }

    /// Handles an event of a connection to the control socket.
    pub(super) fn client_event(&mut self, number: u32) {
        let Some(mut client) = self.clients.remove(&number) else {
            return;
        };
        if client.send().is_err() {
            return;
        }
        let is_open = client.unsent() > 0 || client.receive(MAX_REQUEST).unwrap_or(false);
        if client.received.len() > MAX_REQUEST {
            return;
        }
        while let Some(line) = next_line(&mut client) {
            self.respond(&mut client, &line);
            if self.next != Next::GoOn {
                break;
            }
        }
        if is_open {
            self.clients.insert(number, client);
        }
    }

    fn respond(&mut self, client: &mut BufferedSocket, line: &[u8]) {
        let outcome = match serde_json::from_slice(line) {
            Ok(Request::List {}) => return send(client, &self.status()),
            Ok(Request::Serve { pool, vectors }) => self.serve_pool(&pool, vectors).map(Some),
            Ok(Request::Drop { pool }) => self.drop_named(&pool).map(|()| None),
            Ok(Request::Name { pid, name }) => {
                self.set_name(pid, name);
                Ok(None)
            }
            Ok(Request::Metrics { address }) => self.serve_metrics(address),
            Ok(Request::Restart {}) => {
                self.next = Next::Restart;
                Ok(None)
            }
            Ok(Request::Stop {}) => {
                self.next = Next::Stop;
                Ok(None)
            }
            Err(e) => Err(error!("not a request: {e}")),
        };
        let response = match outcome {
            Ok(socket) => Response { socket, error: None },
            Err(error) => Response { socket: None, error: Some(error.to_string()) },
        };
        send(client, &response);
    }

    fn status(&self) -> Status {
        Status {
            pid: std::process::id(),
            keeper: self.keeper_pid,
            since: self.since,
            transient: self.program.transient,
            metrics: self.metrics_address(),
            pools: self.pools.values().map(ServedPool::status).collect(),
        }
    }

    fn set_name(&mut self, pid: u32, name: String) {
        for served in self.pools.values_mut() {
            for (slot, peer) in &mut served.peers {
                let entry = served.stored.peer_table.entry(*slot);
                if entry.pid.load(std::sync::atomic::Ordering::Relaxed) == pid {
                    entry.set_name(&name);
                    peer.name = entry.name();
                }
            }
        }
        if self.names.len() < MAX_NAMES {
            self.names.insert(pid, name);
        }
    }

    /// Serves a pool; returns the socket to which machines connect.
    fn serve_pool(&mut self, pool: &str, vectors: usize) -> Result<String> {
        if vectors == 0 || vectors > MAX_VECTORS {
            return Err(error!("a peer has 1 to {MAX_VECTORS} vectors"));
        }
        let reference =
            vshmem_transport::resolve(pool.as_bytes()).map_err(|e| error!("there is no pool {pool}: {e}"))?;
        let name = pool_name(&reference);
        let socket = self.program.directory.pool(&name);
        let file = open_file(&reference)?;
        let id = |fd: &OwnedFd| rustix::fs::fstat(fd).map(|stat| (stat.st_dev, stat.st_ino)).ok();
        if let Some(served) = self.pools.values().find(|p| p.stored.name == name) {
            if id(&served.stored.file) != id(&file) {
                return Err(error!("another pool named {name} is served"));
            }
            if served.stored.peer_table.vectors() != vectors {
                return Err(error!("{name} is served with {} vectors", served.stored.peer_table.vectors()));
            }
            return Ok(socket.to_string_lossy().into_owned());
        }
        let stored = StoredPool {
            listener: listen(&socket)?.into(),
            peer_table: PeerTable::new(vectors).explain(|| "could not make a peer table".into())?,
            eventfds: new_eventfds(vectors).explain(|| "could not make eventfds".into())?,
            name,
            file,
        };
        let served = ServedPool::open(stored, socket.clone()).inspect_err(|_| {
            let _ = fs::remove_file(&socket);
        })?;
        self.store_pool(&served);
        self.add(served);
        Ok(socket.to_string_lossy().into_owned())
    }

    fn drop_named(&mut self, name: &str) -> Result<()> {
        let found = self.pools.iter().find(|(_, p)| p.stored.name == name);
        let Some((&pool, _)) = found else {
            return Err(error!("no pool {name} is served"));
        };
        self.drop_pool(pool);
        Ok(())
    }
}

/// The next complete line, unless too many responses are unsent.
fn next_line(client: &mut BufferedSocket) -> Option<Vec<u8>> {
    if client.unsent() > MAX_REQUEST {
        return None;
    }
    let end = client.received.iter().position(|byte| *byte == b'\n')?;
    Some(client.received.drain(..=end).collect())
}

/// Sends a response, now or as soon as the client reads.
fn send(client: &mut BufferedSocket, response: &impl serde::Serialize) {
    client.push(&serde_json::to_vec(response).expect("a response is plain data"));
    client.push(b"\n");
    let _ = client.send();
}

/// The name under which a pool is served: its own, or else that of its file.
fn pool_name(reference: &PoolRef) -> String {
    let path = reference.path().to_string_lossy();
    let name = match reference.name() {
        b"" => path.rsplit('/').next().unwrap_or_default().into(),
        name => String::from_utf8_lossy(name),
    };
    name.chars().take(64).collect()
}

/// Opens the file of a pool that is to be served, if its type and size are right.
fn open_file(reference: &PoolRef) -> Result<OwnedFd> {
    let path = Path::new(OsStr::from_bytes(reference.path().to_bytes()));
    let fd = vshmem_transport::open_local_file(reference)
        .map_err(|why| error!("could not open {}: {why}", path.display()))?;
    // SAFETY: opened by the call, and owned here.
    let file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    let meta = file.metadata().explain(|| format!("could not look at {}", path.display()))?;
    if !meta.is_file() || !meta.len().is_power_of_two() {
        return Err(error!(
            "{} can't be a machine's device: it must be a file whose size is a power of two",
            path.display()
        ));
    }
    Ok(file.into())
}
