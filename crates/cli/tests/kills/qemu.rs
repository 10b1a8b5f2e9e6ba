//! A stand-in for QEMU: it has a monitor, and an agent for commands in place of a machine. It takes every
//! order, and runs no command.

use serde_json::{json, Value};
use std::io::{Read, Write};
use std::os::fd::{FromRawFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;

/// The name by which this program is QEMU.
pub const NAME: &str = "qemu-system-x86_64";
/// The halves of greetings, and the kind of a frame that is a message (crates/machines/cluster/src/wire).
const HELLO: &[u8; 16] = b"vshmem-hello-/6\n";
const WELCOME: &[u8; 16] = b"vshmem-welcom/6\n";
const MESSAGE: u8 = 1;
/// Bytes before a frame's payload.
const HEADER: usize = 8;

/// Runs until it is told to end.
pub fn main(words: &[String]) -> ! {
    if words.iter().any(|word| word == "--version") {
        println!("QEMU emulator version 7.2.0");
        std::process::exit(0);
    }
    extern "C" fn end(_: libc::c_int) {
        // SAFETY: ends the process.
        unsafe { libc::_exit(0) }
    }
    // The first process of a namespace only gets signals that it handles.
    // SAFETY: the handler makes one system call.
    unsafe { libc::signal(libc::SIGTERM, end as *const () as libc::sighandler_t) };
    for pair in words.windows(2).filter(|pair| pair[0] == "-chardev") {
        let field =
            |name: &str| pair[1].split(',').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
        let (Some(id), Some(fd)) = (field("id"), field("fd").and_then(|fd| fd.parse().ok())) else {
            continue;
        };
        match id {
            "monitor" => serve(fd, monitor),
            id if id.strip_prefix('c').is_some_and(|number| number.parse::<u32>().is_ok()) => {
                serve(fd, agent)
            }
            _ => (),
        }
    }
    loop {
        thread::park();
    }
}

/// Serves one connection after the other.
fn serve(fd: RawFd, connection: fn(UnixStream) -> std::io::Result<()>) {
    // SAFETY: it was passed to this process for this.
    let listener = unsafe { UnixListener::from_raw_fd(fd) };
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // The other end may be killed.
            let _ = connection(stream);
        }
    });
}

fn monitor(mut stream: UnixStream) -> std::io::Result<()> {
    let mut say = stream.try_clone()?;
    writeln!(say, "{}", json!({"QMP": {"version": {}, "capabilities": []}}))?;
    for order in serde_json::Deserializer::from_reader(&mut stream).into_iter::<Value>() {
        let answer = match order?["execute"].as_str() {
            // SAFETY: asks for this thread's number.
            Some("query-cpus-fast") => json!([{"cpu-index": 0, "thread-id": unsafe { libc::getpid() }}]),
            Some("query-pci" | "query-chardev" | "qom-list") => json!([]),
            _ => json!({}),
        };
        writeln!(say, "{}", json!({ "return": answer }))?;
    }
    Ok(())
}

/// Welcomes a host, and says of each command that it has ended well.
fn agent(mut stream: UnixStream) -> std::io::Result<()> {
    let (mut heard, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let len = stream.read(&mut piece)?;
        if len == 0 {
            return Ok(());
        }
        heard.extend_from_slice(&piece[..len]);
        while let Some((used, answer)) = answer(&heard) {
            heard.drain(..used);
            stream.write_all(&answer)?;
        }
    }
}

/// Bytes of the greeting or frame with which the input begins, and the answer to it.
fn answer(heard: &[u8]) -> Option<(usize, Vec<u8>)> {
    if heard.starts_with(HELLO) {
        let nonce = heard.get(16..32)?;
        return Some((32, [WELCOME, nonce].concat()));
    }
    let header = heard.get(..HEADER)?;
    let len = u32::from_le_bytes(header[4..].try_into().expect("four bytes")) as usize;
    let payload = heard.get(HEADER..HEADER + len)?;
    if header[0] != MESSAGE || !payload.starts_with(b"{\"start\"") {
        return Some((HEADER + len, vec![]));
    }
    let ended = br#"{"ended":{"exited":0}}"#;
    let answer = [&header[..4], &(ended.len() as u32).to_le_bytes(), ended].concat();
    Some((HEADER + len, answer))
}
